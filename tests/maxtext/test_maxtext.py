"""MaxText itself on token rows: killed and resumed, and from two processes to one.

`make test-maxtext` runs it in an environment of its own, because MaxText needs Python 3.12.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import maxtext
import pytest

import headwater
from pings import SCHEMA, pings, write_csv

STEPS = 6
BASE = Path(maxtext.__file__).parent / "configs/base.yml"
TINY = [
    "vocab_size=267", "base_emb_dim=64", "base_num_decoder_layers=2", "base_num_query_heads=2",
    "base_num_kv_heads=2", "head_dim=32", "base_mlp_dim=128", "max_target_length=128",
    "hardware=cpu", "attention=dot_product", "dtype=float32",
    "enable_checkpointing=True", "async_checkpointing=False", "checkpoint_period=1",
    "save_checkpoint_on_completion=False", "enable_goodput_recording=False", "log_period=1",
    "skip_jax_distributed_system=True", "gcs_metrics=False", "data_shuffle_seed=3",
    "override_model_config=True", "tokenizer_type=huggingface", "eval_interval=-1",
]  # fmt: skip

# Records the digests of each batch that the training takes, and kills itself after some of them.
PROGRAM = """
import hashlib, json, os, signal, sys
import numpy as np

rank, port, store, record, kill_after, *rest = sys.argv[1:]
if port != "-":
    import jax

    jax.distributed.initialize(f"127.0.0.1:{port}", 2, int(rank))
from headwater import maxtext as ours

def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array)).hexdigest()

take = ours._Rows.__next__
count = 0

def recorded(self):
    global count
    if count == int(kill_after):
        os.kill(os.getpid(), signal.SIGKILL)
    batch = take(self)
    tensors = np.stack([batch[name] for name in sorted(batch)], axis=1)
    rows = [digest(row) for row in tensors]
    with open(record, "a") as file:
        print(json.dumps(rows), file=file)
    count += 1
    return batch

ours._Rows.__next__ = recorded
ours.main([store, *rest])
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pings")
    (folder / "events.toml").write_text(SCHEMA)
    path = folder / "pings.db"
    headwater.prepare(write_csv(folder, pings()), folder / "events.toml", path)
    return path


def command(store, folder, run, *settings, record, kill_after=-1, rank=0, port="-"):
    metrics = f"metrics_file={folder / record}.{rank}.losses"
    output = f"base_output_directory={folder}"
    words = [rank, port, store, f"{folder / record}.{rank}", kill_after, BASE]
    words += [f"run_name={run}", output, metrics]
    return [sys.executable, "-c", PROGRAM, *map(str, words), *TINY, *settings]


def start(*arguments, **options):
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "DECOUPLE_GCLOUD": "TRUE"}
    return subprocess.Popen(
        command(*arguments, **options),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end(process, status=0):
    output, _ = process.communicate(timeout=600)
    assert process.returncode == status, output[-8000:]
    return output


def batches(folder, record, rank=0):
    """The digests of the rows of each batch that a process took."""
    return [json.loads(line) for line in Path(f"{folder / record}.{rank}").read_text().splitlines()]


def losses(folder, record):
    """The loss of each step, exactly."""
    lines = Path(f"{folder / record}.0.losses").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return {int(one["step"]): one["learning/loss"] for one in found}


def last_checkpoint(folder, run):
    names = [path.name for path in (folder / run / "checkpoints").iterdir()]
    return max(int(name) for name in names if name.isdigit())


def test_p2_maxtext_killed_after_three_steps_resumes_bit_for_bit(store, tmp_path):
    steps = (f"steps={STEPS}", "per_device_batch_size=4")
    end(start(store, tmp_path, "whole", *steps, record="whole"))
    whole, whole_losses = batches(tmp_path, "whole"), losses(tmp_path, "whole")
    assert sorted(whole_losses) == list(range(STEPS))
    end(start(store, tmp_path, "run", *steps, record="killed", kill_after=4), status=-9)
    first = last_checkpoint(tmp_path, "run") + 1
    assert 0 < first < STEPS
    end(start(store, tmp_path, "run", *steps, record="resumed"))
    assert batches(tmp_path, "resumed")[: STEPS - first] == whole[first:STEPS]
    assert losses(tmp_path, "resumed") == {step: whole_losses[step] for step in range(first, STEPS)}


def test_p4_maxtext_saved_by_two_processes_resumes_with_one(store, tmp_path):
    end(start(store, tmp_path, "whole", f"steps={STEPS}", "per_device_batch_size=8", record="one"))
    whole = batches(tmp_path, "one")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = ("steps=3", "per_device_batch_size=4")
    two = [
        start(store, tmp_path, "run", *settings, record="two", rank=rank, port=port)
        for rank in range(2)
    ]
    for process in two:
        end(process)
    parts = [batches(tmp_path, "two", rank)[:3] for rank in range(2)]
    shared = [
        [row for pair in zip(*step, strict=True) for row in pair]
        for step in zip(*parts, strict=True)
    ]
    assert shared == whole[:3]
    first = last_checkpoint(tmp_path, "run") + 1
    assert 0 < first <= 3
    end(start(store, tmp_path, "run", f"steps={STEPS}", "per_device_batch_size=8", record="again"))
    assert batches(tmp_path, "again")[: STEPS - first] == whole[first:STEPS]


def test_a_vocabulary_smaller_than_the_codecs_is_rejected(store, tmp_path):
    settings = ("steps=1", "per_device_batch_size=4", "vocab_size=256")
    output = end(start(store, tmp_path, "small", *settings, record="small"), status=1)
    assert "expected a vocab_size of at least 267" in output
    assert "set vocab_size=267" in output

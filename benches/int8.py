"""Measures vectors of texts as 8-bit integers beside 16-bit floats, in turns.

    python benches/int8.py --work FOLDER [--scale 0.2] [--rounds 5] [--record FILE]

Prepares TPC-H in both, on one core: CPU seconds, and bytes of the file of texts. Then batches of
the sampler, on one core and one thread, when warm and over the first 1,000: the texts come with
them. Then `confluence` trains on the demo shop for each encoding with the same random seeds, and
the losses are compared.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
from pathlib import Path

import prepare
import sampler

ENCODINGS = ("f16", "int8")
KINDS = ("full", "compact")
PREPARATIONS = 3
SEEDS = (0, 1)
STEPS = 200


def prepared(work: Path, scale: float) -> dict[str, object]:
    """Prepares the stores of TPC-H in each encoding, whose paths are those of `stores`."""
    here, source = prepare.HERE, prepare.tpch(work, scale)
    schema = work / "tpch-8-tasks.toml"
    schema.write_text((here / "tpch.toml").read_text() + (here / "tpch-tasks.toml").read_text())
    found: dict[str, object] = {}
    for encoding, store in stores(work).items():
        options = ["--text-vectors", encoding, "--threads", "1"]
        cost = prepare.prepare(source, store, *options, schema=schema, cores=1)
        found[encoding] = {
            "cpu_s": round(cost["cpu_s"], 1),
            "peak_rss_mb": round(cost["peak_rss_mb"]),
            "text_embeddings_mb": (store / "text_embeddings.bin").stat().st_size / 1e6,
            "store_mb": prepare.folder_bytes(store) / 1e6,
        }
    return found


def stores(work: Path) -> dict[str, Path]:
    """Returns the path of the store in each encoding."""
    return {encoding: work / f"{encoding}.db" for encoding in ENCODINGS}


def batches(work: Path, rounds: int) -> dict[str, object]:
    """Measures batches of each kind; the ratios are those of the pairs of a round."""
    found: dict[str, object] = {}
    for kind in KINDS:
        turns = [
            {encoding: sampler.cost(store, kind) for encoding, store in stores(work).items()}
            for _ in range(rounds)
        ]
        ratios = [
            turn["int8"]["warm_cpu_ms_per_batch"] / turn["f16"]["warm_cpu_ms_per_batch"]
            for turn in turns
        ]
        found[kind] = {
            encoding: sampler.medians([turn[encoding] for turn in turns]) for encoding in ENCODINGS
        } | {"warm_cpu_int8_over_f16_of_each_pair": [round(ratio, 3) for ratio in ratios]}
    return found


def losses(work: Path) -> dict[str, object]:
    """Trains on the demo shop; returns the losses and scores of each encoding and seed."""
    data, found = work / "demo", dict[str, object]()
    shutil.rmtree(data, ignore_errors=True)
    subprocess.run([sampler.HEADWATER, "demo-data", data], check=True)
    for encoding in ENCODINGS:
        store = work / f"demo-{encoding}.db"
        prepare.prepare(data, store, "--text-vectors", encoding, schema=data / "schema.toml")
        for seed in SEEDS:
            out = work / f"run-{encoding}-{seed}"
            shutil.rmtree(out, ignore_errors=True)
            settings = [
                f"data.stores={store}", f"optimizer.steps={STEPS}", f"optimizer.seed={seed}",
                "run.boosting=false",
            ]  # fmt: skip
            line = [str(prepare.BIN / "confluence"), "train", "--config", "cpu-small", "--out"]
            line.append(str(out))
            prepare.run([*line, *(word for of in settings for word in ("--set", of))])
            found[f"{encoding}, seed {seed}"] = {
                "train_loss_of_last_steps": last_losses(out),
                "test": test_scores(out),
            }
    return found


def last_losses(out: Path) -> float:
    """Returns the mean of the last five losses in the log of a run."""
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    of_steps = [line["loss"] for line in lines if "loss" in line and "split" not in line]
    return round(statistics.mean(of_steps[-5:]), 5)


def test_scores(out: Path) -> dict[str, dict[str, float]]:
    """Returns the loss and the leading metric of each task on the test split."""
    tasks = json.loads((out / "results.json").read_text())["tasks"]
    return {
        name: {of: round(task["test"][of], 4) for of in ("loss", task["leading"])}
        for name, task in tasks.items()
    }


def main() -> None:
    """Runs the measurements and records them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scale", type=float, default=0.2, help="TPC-H scale factor (default .2)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each kind (default 5)")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--record", type=Path, help="write the figures here as JSON")
    args = parser.parse_args()
    record = prepare.heading(
        f"vectors of texts as int8 beside f16, in turns: TPC-H scale factor {args.scale:g}, 8 "
        "tasks, B=32 S=1024 width 16, vectors of 256; and confluence on the demo shop, "
        f"{STEPS} steps"
    )
    record["prepare"] = [prepared(args.work, args.scale) for _ in range(PREPARATIONS)]
    record["batches"] = batches(args.work, args.rounds)
    record["confluence"] = losses(args.work)
    prepare.publish(record, args.record)


if __name__ == "__main__":
    main()

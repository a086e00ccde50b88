"""The example of orders as events: a decoder that learns more than a bigram."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import headwater

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples/orders"


def run(folder, *command):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def train(store, *options):
    return run(store.parent, sys.executable, EXAMPLE / "decoder.py", store, *options)


def small_store(folder, fields, split, entities=30, events=20):
    """A store of a log with columns for a field of any type; `none` is NULL everywhere."""
    lines = ["who,at,kind,none,note,size,due"]
    for entity in range(entities):
        for event in range(events):
            number = entity * events + event
            at = 1_751_328_000 + 60 * number
            kind, note = "abc"[number % 3], "x" * (number % 250)
            lines.append(f"e{entity},{at},{kind},,{note},{number / 8},{at + number % 7}")
    (folder / "log.csv").write_text("\n".join(lines) + "\n")
    schema = (
        'database = "log"\n[events]\nsource = "log"\ncodec = "fields-v1"\nentity = "who"\n'
        f'time = {{ column = "at", unit = "s" }}\nsplit = {split}\nfields = {fields}\n'
    )
    (folder / "events.toml").write_text(schema)
    headwater.prepare(folder / "log.csv", folder / "events.toml", folder / "log.db")
    return folder / "log.db"


def test_a_decoder_of_orders_learns_and_is_better_than_a_bigram(tmp_path):
    pytest.importorskip("duckdb")
    pytest.importorskip("optax")
    run(tmp_path, "headwater", "demo-data", "shop")
    made = run(tmp_path, sys.executable, EXAMPLE / "orders.py", "shop", "orders.db")
    assert made.startswith("orders.db: 21,372 orders of 1,200 customers, root ")
    trained = train(tmp_path / "orders.db", "--steps", "160")
    result = json.loads(trained.splitlines()[-1])
    decoder, bigram, tokens = result["test"]["all tokens"]
    assert result["first"] > 6 > 3 > result["last"]
    assert tokens > 100_000
    assert decoder < bigram - 0.3
    # What is drawn by itself, nobody foresees: there, the counts of the bigram are the floor.
    decoder, bigram, _ = result["test"]["channel"]
    assert abs(bigram - 1.386) < 0.01
    assert decoder > bigram - 0.01
    # It learnt what an event is, and this one follows others that have times.
    sampled = {field["name"]: field["value"] for field in result["sampled"]}
    assert sampled.keys() <= {*result["test"], "items", "total", "time"}
    assert sampled["time"]["since"] >= 0
    assert sampled["channel"] in ("web", "phone", "shop", "app")
    told = trained[trained.index("sampled for ") :].splitlines()
    named = [line.split()[0] for line in told[1:-1] if "attempts" not in line]
    assert named == [of["name"] for of in result["sampled"]]


@pytest.mark.parametrize(
    ("split", "share", "entities"), [("train", "1.0", 3), ("val", "0.6, val = 0.4", 30)]
)
def test_without_events_in_test_another_split_is_measured(tmp_path, split, share, entities):
    pytest.importorskip("optax")
    fields, shares = '{ kind = "category" }', f"{{ train = {share}, test = 0.0 }}"
    store = small_store(tmp_path, fields, shares, entities)
    output = train(store, "--steps", "2")
    result = json.loads(output.splitlines()[-1])
    assert "test has no events: measured on " + split in output
    assert ("entities both have seen" in output) == (split == "train")
    # 16 rows are a batch; fewer are measured as well.
    assert result[split].keys() == {"all tokens", "kind"}
    assert "test" not in result
    # After two steps it writes few events: that is told.
    assert (result["sampled"] is None) == ("train for more steps" in output)


def test_a_store_without_events_in_train_is_refused_in_words(tmp_path):
    pytest.importorskip("optax")
    shares = "{ train = 0.0, test = 1.0 }"
    store = small_store(tmp_path, '{ kind = "category" }', shares, entities=3)
    command = [sys.executable, EXAMPLE / "decoder.py", store]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert "error: expected events in train, found none" in done.stderr


def test_categories_without_values_and_long_events_are_learnt_from(tmp_path):
    pytest.importorskip("optax")
    fields = (
        '{ kind = { type = "category", max_tokens = 2 }, none = "category", '
        'note = { type = "bytes", max_bytes = 254 }, size = "number", '
        'due = { type = "time", unit = "s" } }'
    )
    store = small_store(tmp_path, fields, "{ train = 0.6, test = 0.4 }")
    output = train(store, "--steps", "2")
    result = json.loads(output.splitlines()[-1], parse_constant=pytest.fail)
    assert result["test"].keys() == {"all tokens", "kind"}
    assert "\nnone                  left out: no value" in output
    # 10, 3 + 1, 3, 2 + 254, 3 and 3; twice.
    assert "each step has 7 x 558 tokens" in output
    assert "each step has 14 x 279 tokens" in train(store, "--steps", "2", "--length", "279")
    # The store itself knows the same number.
    with pytest.raises(headwater.InvalidArgument, match="expected 279 to"):
        headwater.Events(store, sequence_length=278)


def test_of_a_large_split_a_part_is_measured(tmp_path):
    pytest.importorskip("optax")
    shares = "{ train = 0.1, test = 0.9 }"
    store = small_store(tmp_path, '{ kind = "category" }', shares, entities=2_000, events=1)
    result = json.loads(train(store, "--steps", "2").splitlines()[-1])
    # 64 batches of 16 rows, which are full almost.
    _, _, tokens = result["test"]["all tokens"]
    assert 0.8 < tokens / (64 * 16 * 256) < 1

"""The example of orders as events: a decoder that learns more than a bigram."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples/orders"


def test_a_decoder_of_orders_learns_and_is_better_than_a_bigram(tmp_path):
    pytest.importorskip("duckdb")
    pytest.importorskip("optax")

    def run(*command):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("headwater", "demo-data", "shop")
    made = run(sys.executable, EXAMPLE / "orders.py", "shop", "orders.db")
    assert made.startswith("orders.db: 21,372 orders of 1,200 customers, root ")
    trained = run(sys.executable, EXAMPLE / "decoder.py", "orders.db", "--steps", "160")
    result = json.loads(trained.splitlines()[-1])
    decoder, bigram, tokens = result["test"]["all tokens"]
    assert result["first"] > 6 > 3 > result["last"]
    assert tokens > 100_000
    assert decoder < bigram - 0.3
    # What is drawn by itself, nobody foresees: there, the counts of the bigram are the floor.
    decoder, bigram, _ = result["test"]["channel"]
    assert abs(bigram - 1.386) < 0.01
    assert decoder > bigram - 0.01

"""The sampler on TPC-H at scale 0.01: 87,000 rows in eight tables, with composite keys."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import headwater
from digests import global_batch, samplers

GENERATOR = Path(sys.executable).parent / "tpchgen-cli"
SCHEMA = Path(__file__).parents[2] / "benches" / "tpch.toml"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not GENERATOR.exists(), reason="tpchgen-cli is not installed"),
]


@pytest.fixture(scope="module")
def tpch(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tpch")
    generate = [GENERATOR, "parquet", "-s", "0.01", "--output-dir", folder / "data"]
    subprocess.run(generate, check=True, capture_output=True)
    headwater.prepare(folder / "data", SCHEMA, folder / "store", dimension=32)
    return folder / "store"


def test_p1_p4_ranks_threads_and_a_resumed_run_give_one_stream(tpch):
    def stream(world, threads, steps, cursor=None):
        ranks = samplers(str(tpch), world, threads)
        for rank in ranks if cursor else []:
            rank.resume(cursor)
        digests = [global_batch(ranks) for _ in range(steps)]
        cursor = ranks[-1].cursor()
        for rank in ranks:
            rank.shutdown()
        return digests, cursor

    whole, _ = stream(1, 1, 24)
    head, cursor = stream(2, 2, 11)
    assert head == whole[:11]
    assert stream(4, 1, 13, cursor)[0] == whole[11:]


def test_p5_a_pass_has_every_seed_once(tpch):
    samplers_of_ranks = samplers(str(tpch), 2, 2)
    rows = []
    for sampler in samplers_of_ranks:
        for batch in sampler.evaluate("val", ["orders.o_totalprice"]):
            rows.extend(batch["seed_row"][batch["seq_weight"] == 1].tolist())
        sampler.shutdown()
    assert len(rows) == len(set(rows))
    assert len(rows) == samplers_of_ranks[0].seed_counts("val")["tpch/orders.o_totalprice"] > 1000


def test_p7_no_order_of_the_future_is_in_a_context(tpch):
    with headwater.Sampler(tpch, compact=True, tasks=["orders.o_totalprice"]) as sampler:
        batches = [sampler.next_train_batch() for _ in range(10)]
    count = 0
    for batch in batches:
        is_time = (batch["semantic_types"] == 2) & (batch["is_null"] == 0)
        is_time &= batch["is_padding"] == 0
        later = batch["timestamp_us"] > batch["obs_time"][:, None]
        assert not (is_time & later).any()
        count += np.count_nonzero(is_time)
    assert count > 1000

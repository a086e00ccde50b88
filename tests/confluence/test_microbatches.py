"""What processes tell each other of their microbatches: sums and lists that are the same on all."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headwater
from child_processes import saved_by
from headwater.jax import TreeSum, tree_sum

COUNT = 5
# One process of a run: has some microbatches of five, and saves what it is told of all.
TELLING = """
from confluence.microbatches import Exchange
from confluence.parallel import Layout
from headwater.jax import TreeSum

trees = dict(np.load(sys.argv[5]))
layout = Layout()
exchange = Exchange(layout, len(trees["matrix"]))
own = [
    {name: jax.device_put(of[number], layout.device) for name, of in trees.items()}
    for number in TreeSum(len(trees["matrix"]), layout.rank, layout.world).numbers
]
listed = exchange.gather(own)
total, flag = exchange.sum(iter(own), layout.flag_to_devices(process == 1))
found = {name: [of[name] for of in listed] for name in trees}
np.savez(f"{out}-{process}.npz", flag=flag, **found, **{f"sum {k}": v for k, v in total.items()})
"""


@pytest.mark.parametrize("processes", [1, 2])
def test_p9_each_process_is_told_the_same_of_all_microbatches(processes, tmp_path):
    draws = np.random.default_rng(1)
    trees = {
        "matrix": draws.standard_normal((COUNT, 7, 3)).astype(np.float32),
        "number": (draws.standard_normal(COUNT) * 10.0 ** np.arange(COUNT)).astype(np.float32),
    }
    np.savez(tmp_path / "trees.npz", **trees)
    everybody = saved_by(
        TELLING, processes, 1, tmp_path / "told", tmp_path / "trees.npz", seconds=120
    )
    assert len(everybody) == processes
    for found in everybody:
        assert np.max(found["flag"]) == (processes > 1)
        for name, of in trees.items():
            np.testing.assert_array_equal(found[name], of)
            wanted = ((of[0] + of[1]) + (of[2] + of[3])) + of[4]
            np.testing.assert_array_equal(found[f"sum {name}"], wanted)


@pytest.mark.parametrize(
    ("folded", "rows", "message"),
    [
        (False, 2, "expected arrays of 3 leaves along the first axis on each of 1 devices"),
        (True, 3, "expected arrays of 2 nodes along the first axis on each of 1 devices"),
    ],
)
def test_a_tree_sum_of_another_number_of_leaves_is_refused(folded, rows, message):
    def added(given):
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
        return jax.shard_map(
            lambda of: tree_sum(of, "data", leaves=3, folded=folded),
            mesh=mesh, in_specs=jax.P("data"), out_specs=jax.P(), check_vma=False,
        )(given)  # fmt: skip

    good = 2 if folded else 3
    assert list(added({"a": jnp.arange(good, dtype=jnp.float32)})["a"][None]) == [sum(range(good))]
    for wrong in (jnp.zeros(rows), jnp.zeros((rows, good))):
        with pytest.raises(headwater.InvalidArgument, match=message):
            added({"a": jnp.zeros(good), "b": wrong})


def test_one_process_has_all_leaves_by_default():
    total = TreeSum(3)
    assert total.numbers == range(3)
    for number in total.numbers:
        total.push(jnp.float32(number))
    assert total.whole() == 3


def test_one_of_two_processes_has_no_whole_sum():
    total = TreeSum(2, 1, 2)
    assert total.numbers == range(1, 2)
    total.push(jnp.float32(1))
    with pytest.raises(headwater.InvalidArgument, match="expected one process, found 2"):
        total.whole()


def test_more_processes_than_leaves_have_no_sum():
    with pytest.raises(headwater.InvalidArgument, match="expected from 1 to 2 processes"):
        TreeSum(2, 0, 3)

"""`headwater.jax.tree_sum`: one sum for any number of processes and devices."""

from __future__ import annotations

import itertools
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

import headwater
from child_processes import saved_by
from headwater._tree import Fold, Leaves, Node, nodes_within, share
from plain_tree import plain_sum

# JAX warns if a process that has loaded it forks, so only child processes load it.
with_jax = pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")


# One process of a run: adds up the leaves of its devices, in all ways, and saves the sums.
ADDING = """
import functools
import jax.numpy as jnp
from headwater._tree import share
from headwater.jax import TreeSum, tree_sum

leaves = dict(np.load(sys.argv[5]))
found = {}
for devices in map(int, sys.argv[6].split(",")):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("data",))
    sharding = jax.sharding.NamedSharding(mesh, jax.P("data"))

    def program(add):
        return jax.jit(jax.shard_map(
            add, mesh=mesh, in_specs=jax.P("data"), out_specs=jax.P(), check_vma=False
        ))

    for count in map(int, sys.argv[7].split(",")):
        if count < devices:
            continue
        given = jax.tree.map(lambda of: of[:count], leaves)
        # The rows of each device; a last one that counts nothing is NaN.
        shares = [share(count, rank, devices) for rank in range(devices)]
        most = max(map(len, shares))

        def spread(of):
            rows = np.full((devices, most, *of.shape[1:]), np.nan, of.dtype)
            for rank, own in enumerate(shares):
                rows[rank, : len(own)] = of[own.start : own.stop]
            rows = rows.reshape(devices * most, *of.shape[1:])
            return jax.make_array_from_callback(rows.shape, sharding, lambda at: rows[at])

        both = {"tree": functools.partial(tree_sum, axis_name="data", leaves=count)}
        if count % devices == 0:
            both["psum"] = lambda of: jax.tree.map(
                lambda x: jax.lax.psum(jnp.sum(x, axis=0), "data"), of
            )
        for name, add in both.items():
            sums = program(add)(jax.tree.map(spread, given))
            for key, value in sums.items():
                found[f"{name} {count} {devices} {key}"] = np.asarray(value, np.float32)
        # As they come: each process adds up those of its device, if it has one.
        if processes == devices:
            total = TreeSum(count, process, devices)
            # Of NumPy arrays it takes copies.
            reused = jax.tree.map(lambda of: np.empty(of.shape[1:], of.dtype), given)
            for number in total.numbers:
                for key, of in given.items():
                    reused[key][...] = of[number]
                total.push(reused)
            if devices == 1:
                sums = total.whole()
            else:
                nodes = jax.tree.map(
                    lambda of: jax.make_array_from_process_local_data(sharding, np.asarray(of)),
                    total.nodes(),
                )
                folded = functools.partial(tree_sum, axis_name="data", leaves=count, folded=True)
                sums = program(folded)(nodes)
            for key, value in sums.items():
                found[f"pushed {count} {devices} {key}"] = np.asarray(value, np.float32)
np.savez(f"{out}-{process}.npz", **found)
"""


COUNTS = [1, 2, 3, 5, 8, 12]


def added_by(processes, devices_each, devices, folder, leaves, counts=COUNTS):
    """Returns the sums of each process, by way, leaves, devices and array."""
    out, file = folder / f"of-{processes}-{devices_each}", folder / "leaves.npz"
    np.savez(file, **leaves)
    given = file, devices, ",".join(map(str, counts))
    return saved_by(ADDING, processes, devices_each, out, *given, seconds=200)


def some_leaves():
    draws = np.random.default_rng(1)
    return {
        # Sizes that 3 devices do not divide, and one smaller than their number.
        "matrix": draws.standard_normal((12, 7, 11)).astype(np.float32),
        "number": (draws.standard_normal(12) * 10.0 ** draws.integers(-3, 3, 12)).astype("f4"),
        "half": draws.standard_normal((12, 5)).astype(np.float16),
        # With signs and bits of their own; of two, either may be the second.
        "nan": not_numbers(draws.integers(0, 4, (12, 40))),
        "empty": np.zeros((12, 0), np.int32),
    }


def not_numbers(kinds):
    bits = np.array([0x7FC00001, 0xFFC00002, 0x7F800000, 0xFF800000], np.uint32)
    return bits[kinds].view(np.float32)


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    folder, leaves = tmp_path_factory.mktemp("sums"), some_leaves()
    everybody = {}
    for processes, each, devices in ((1, 8, "1,2,3,4,8"), (2, 1, "2"), (3, 1, "3"), (2, 2, "4")):
        for number, found in enumerate(added_by(processes, each, devices, folder, leaves)):
            for name, value in found.items():
                everybody[f"{name} {processes} {each} {number}"] = value
    return leaves, everybody


@with_jax
def test_p9_three_devices_add_up_along_the_tree(tmp_path):
    """Of seven leaves and more, devices differ in the number of their nodes and in their sizes.

    One device has a node of eight leaves.
    """
    counts, leaves = [3, 7, 11], some_leaves()
    (found,) = added_by(1, 3, "1,3", tmp_path, leaves, counts)
    for count in counts:
        for devices, (key, of) in itertools.product((1, 3), leaves.items()):
            wanted = plain_sum(of[:count]).astype(np.float32)
            name = f"tree {count} {devices} {key}"
            assert found[name].tobytes() == wanted.tobytes(), name


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.slow
@with_jax
def test_p9_a_tree_sum_has_the_same_bits_on_any_devices_and_processes(count, sums):
    leaves, everybody = sums
    for key, of in leaves.items():
        wanted = plain_sum(of[:count]).astype(np.float32)
        found = {
            name: value
            for name, value in everybody.items()
            if name.split()[0] != "psum"
            and name.split()[1] == str(count)
            and name.split()[3] == key
        }
        # One process on 1, 2, 3, 4, 8 devices, and pushed; 2 and 3 processes, both ways; 2 of 2.
        assert len(found) == 18 or count < 8
        for name, value in found.items():
            assert value.tobytes() == wanted.tobytes(), name


@pytest.mark.slow
@with_jax
def test_the_sum_of_psum_differs_with_the_number_of_devices(sums):
    _, everybody = sums
    names = [f"psum 12 {devices} matrix 1 8 0" for devices in (1, 2, 3, 4)]
    assert len({everybody[name].tobytes() for name in names}) > 1


def test_shares_follow_each_other_and_differ_by_one_at_most():
    for leaves in range(1, 40):
        for world in range(1, leaves + 1):
            shares = [share(leaves, rank, world) for rank in range(world)]
            assert [number for of in shares for number in of] == list(range(leaves))
            assert max(map(len, shares)) - min(map(len, shares)) <= 1
    with pytest.raises(headwater.InvalidArgument, match="expected from 1 to 4 processes"):
        share(4, 0, 5)


def test_nodes_are_the_greatest_and_any_split_gives_one_sum():
    def added(left, right):
        return f"({left} {right})"

    for leaves in range(1, 40):
        for world in range(1, leaves + 1):
            whole = Fold(added)
            for rank in range(world):
                own = Fold(added)
                for number in share(leaves, rank, world):
                    own.push(Node(number, 1), str(number))
                assert [node for node, _ in own] == nodes_within(share(leaves, rank, world))
                for node, value in own:
                    whole.push(node, value)
            alone = Fold(added)
            for number in range(leaves):
                alone.push(Node(number, 1), str(number))
            assert whole.whole() == alone.whole()
            assert leaves != 5 or whole.whole() == "(((0 1) (2 3)) 4)"


def in_brackets(left, right):
    return f"({left} {right})"


def test_leaves_of_a_process_are_added_along_the_tree():
    # The second of two processes: nodes of two and of four leaves, and one leaf alone.
    own = Leaves(13, 1, 2, in_brackets)
    assert list(own.numbers) == [7, 8, 9, 10, 11, 12]
    for number in own.numbers:
        own.push("form", lambda number=number: str(number))
    assert own.nodes() == ["7", "((8 9) (10 11))", "12"]
    assert own.whole() == "(7 (((8 9) (10 11)) 12))"
    assert own.form == "form"


def test_leaves_of_a_process_that_do_not_fit_are_refused_before_they_are_made():
    def made():
        raise AssertionError("called for a leaf that does not fit")

    with pytest.raises(headwater.InvalidArgument, match="expected from 1 to 2 processes"):
        Leaves(2, 0, 3, in_brackets)
    own = Leaves(2, 0, 1, in_brackets)
    own.push("wide", lambda: "0")
    for call in (own.nodes, own.whole):
        with pytest.raises(headwater.InvalidArgument, match=r"\[0, 1\] .*, found \[1\] missing"):
            call()
    with pytest.raises(headwater.InvalidArgument, match="the one before, wide, found narrow"):
        own.push("narrow", made)
    # A refused leaf counts for nothing.
    own.push("wide", lambda: "1")
    with pytest.raises(headwater.InvalidArgument, match="expected 2 pushes, .* found one more"):
        own.push("wide", made)
    assert own.whole() == "(0 1)"


REFUSED = """
import jax.numpy as jnp
import headwater
from headwater.jax import TreeSum, spread

def refused(call, words):
    try:
        call()
    except headwater.InvalidArgument as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)

total = TreeSum(2)
refused(total.whole, "found [0, 1] missing")
total = TreeSum(2)
total.push({"a": jnp.zeros(2)})
refused(lambda: total.push({"a": jnp.zeros(1)}), "found {'a': ShapeDtypeStruct(shape=(1,)")
refused(lambda: total.push({"b": jnp.zeros(2)}), "expected a leaf like the one before")
total = TreeSum(1)
total.push(jnp.zeros(2))
refused(lambda: total.push(jnp.zeros(2)), "expected 1 pushes, one for each leaf of this process")
total = TreeSum(2, rank=0, world=2)
total.push(jnp.zeros(2))
refused(total.whole, "expected one process, found 2")
refused(lambda: spread({"a": jnp.zeros(2), "b": jnp.zeros(3)}, 1), "found [(2,), (3,)]")
refused(lambda: spread(jnp.zeros(()), 1), "found [()]")
for devices in (0, 3):
    refused(lambda: spread(jnp.zeros(2), devices), f"found {devices}; add up more leaves")
"""

SPREAD = """
import numpy as np
from headwater._tree import share
from headwater.jax import spread

for leaves in range(1, 12):
    for devices in range(1, leaves + 1):
        rows = spread({"a": np.arange(leaves)}, devices)["a"].reshape(devices, -1)
        for rank, row in enumerate(rows):
            own = share(leaves, rank, devices)
            assert list(row[: len(own)]) == list(own), (leaves, devices, rank)
            assert len(row) - len(own) <= 1
"""


@with_jax
def test_spread_gives_each_device_its_share_of_the_leaves():
    found = subprocess.run([sys.executable, "-c", SPREAD], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


@pytest.mark.slow
@with_jax
def test_leaves_that_do_not_fit_are_refused():
    found = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr

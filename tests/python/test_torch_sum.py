"""`headwater.torch.tree_sum`: one sum for any number of processes, the same as JAX's."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import headwater
from child_processes import free_port, run_each
from plain_tree import plain_sum
from shop import SCHEMA

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from headwater.torch import TreeSum, tree_sum  # noqa: E402

COUNTS = (1, 2, 3, 5, 8, 12)
# One process: adds up its leaves in both ways, and saves the sums.
ADDING = """
import sys
import time
from pathlib import Path
import numpy as np
import torch
from headwater.torch import TreeSum, tree_sum

rank, world, port, out, given, device = sys.argv[1:]
if int(world) > 1:
    torch.distributed.init_process_group(
        "gloo", f"tcp://127.0.0.1:{port}", rank=int(rank), world_size=int(world)
    )
leaves = {name: torch.from_numpy(of).to(device) for name, of in np.load(given).items()}
leaves["bfloat16"] = leaves["matrix"].bfloat16()
found = {}
for count in (1, 2, 3, 5, 8, 12):
    if count < int(world):
        continue
    total = TreeSum(count)
    own = {name: of[total.numbers.start : total.numbers.stop] for name, of in leaves.items()}
    for at in range(len(total.numbers)):
        total.push({name: of[at] for name, of in own.items()})
    for way, sums in (("pushed", total.whole()), ("tree", tree_sum(own, leaves=count))):
        for name, of in sums.items():
            found[f"{way} {count} {name}"] = of.float().cpu().numpy()
np.savez(out, **found)
if int(world) > 1:
    torch.distributed.destroy_process_group()
"""


@functools.cache
def drawn_leaves():
    draws = np.random.default_rng(1)
    return {
        # Sizes that 3 processes do not divide, and one smaller than their number.
        "matrix": draws.standard_normal((12, 7, 11)).astype(np.float32),
        "number": (draws.standard_normal(12) * 10.0 ** draws.integers(-3, 3, 12)).astype("f4"),
        "half": draws.standard_normal((12, 5)).astype(np.float16),
        # With signs and bits of their own; of two, either may be the second.
        "nan": not_numbers(draws.integers(0, 4, (12, 40))),
    }


def not_numbers(kinds):
    bits = np.array([0x7FC00001, 0xFFC00002, 0x7F800000, 0xFF800000], np.uint32)
    return bits[kinds].view(np.float32)


def added_by(world, folder, device="cpu"):
    """Returns the sums of each process."""
    np.savez(folder / "leaves.npz", **drawn_leaves())
    port = free_port()
    outs = [folder / f"{device}-{rank}-of-{world}.npz" for rank in range(world)]
    shared = [folder / "leaves.npz", device]
    programs = [[ADDING, rank, world, port, out, *shared] for rank, out in enumerate(outs)]
    run_each(programs, folder / device, seconds=200, OMP_NUM_THREADS="1")
    return [dict(np.load(out)) for out in outs]


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_p9_a_tree_sum_of_pytorch_has_the_same_bits_on_any_processes(world, tmp_path):
    leaves = {name: torch.from_numpy(of) for name, of in drawn_leaves().items()}
    leaves["bfloat16"] = leaves["matrix"].bfloat16()
    counts = [count for count in COUNTS if count >= world]
    for found in added_by(world, tmp_path):
        assert len(found) == 2 * len(leaves) * len(counts)
        for name, value in found.items():
            _, count, key = name.split()
            wanted = plain_sum(leaves[key][: int(count)]).float().numpy()
            assert value.tobytes() == wanted.tobytes(), name


@pytest.mark.slow
def test_p9_a_tree_sum_has_the_same_bits_on_a_gpu(tmp_path):
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU for PyTorch")
    (on_cpu,), (on_gpu,) = added_by(1, tmp_path), added_by(1, tmp_path, "cuda")
    for name, value in on_cpu.items():
        assert on_gpu[name].tobytes() == value.tobytes(), name


def in_processes(world, folder, work):
    """Runs work(rank) in forked processes that PyTorch connects; returns what each returns."""
    fork = multiprocessing.get_context("fork")
    found = fork.SimpleQueue()

    def child(rank):
        # The threads of the parent are not here.
        torch.set_num_threads(1)
        store = torch.distributed.FileStore(str(folder / "store"), world)
        torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=world)
        found.put((rank, work(rank)))
        torch.distributed.destroy_process_group()

    children = [fork.Process(target=child, args=[rank]) for rank in range(world)]
    for one in children:
        one.start()
    for one in children:
        one.join(60)
        one.kill()
    assert [one.exitcode for one in children] == [0] * world
    return dict(found.get() for _ in range(world))


# JAX warns of every fork, if a test in this process has loaded it.
@pytest.mark.filterwarnings("ignore:os.fork")
def test_p9_forked_processes_have_the_bits_of_one(tmp_path):
    leaves = {name: torch.from_numpy(of) for name, of in drawn_leaves().items()}
    # Tensors of several types, one of them empty, and one with fewer numbers than processes.
    leaves |= {"bfloat16": leaves["matrix"].bfloat16(), "empty": torch.zeros(12, 0).double()}
    world, counts = 3, (3, 7, 12)

    def work(rank):
        sums = []
        for count in counts:
            total = TreeSum(count)
            own = slice(total.numbers.start, total.numbers.stop)
            sums.append(tree_sum({name: of[own] for name, of in leaves.items()}, leaves=count))
            assert tree_sum([], leaves=count) == []
        others = r"\[2\]" if rank < 2 else r"\[0, 1\]"
        words = f"found other ones in ranks {others} than in this process"
        with pytest.raises(headwater.InvalidArgument, match=words):
            tree_sum({"a": torch.ones(1, 2 + (rank == 2))}, leaves=world)
        # Of five leaves and of six the second process has the same ones.
        with pytest.raises(headwater.InvalidArgument, match=words):
            tree_sum(torch.ones(2, 2), leaves=5 + (rank == 2))
        return [{name: of.float().numpy() for name, of in each.items()} for each in sums]

    found = in_processes(world, tmp_path, work)
    for rank in range(world):
        for count, sums in zip(counts, found[rank], strict=True):
            for name, of in leaves.items():
                wanted = plain_sum(of[:count]).float().numpy()
                assert sums[name].shape == wanted.shape
                assert sums[name].tobytes() == wanted.tobytes(), (rank, count, name)


OTHERS = """
import sys
import torch
import headwater
from headwater.torch import TreeSum, tree_sum

rank, port = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group(
    "gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2
)
one, ten = torch.ones(1, 3), torch.full((1, 3), 10.0)
# Another order of the names is the same sum.
given = {"a": one, "b": ten} if rank else {"b": ten, "a": one}
found = tree_sum(given, leaves=2)
assert (found["a"][0].item(), found["b"][0].item()) == (2.0, 20.0), found
assert tree_sum(torch.zeros(1, 0), leaves=2).shape == (0,)
for other in ({"a": torch.ones(1, 3 + rank)}, {"ab"[rank]: one}, {"a": (one, one.double())[rank]}):
    try:
        tree_sum(other, leaves=2)
    except headwater.InvalidArgument as error:
        assert f"found other ones in ranks [{1 - rank}]" in str(error), error
    else:
        raise AssertionError(other)
alone = torch.distributed.new_group([1])
try:
    found = tree_sum(one, leaves=1, group=alone)
    assert rank == 1 and found.tolist() == [1.0] * 3
except headwater.InvalidArgument as error:
    assert rank == 0 and "expected a process that belongs to the group" in str(error)
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_other_tensors_in_another_process_are_refused(tmp_path):
    port = free_port()
    run_each([[OTHERS, rank, port] for rank in range(2)], tmp_path / "rank", seconds=200)


def test_a_sum_keeps_the_form_of_what_is_added():
    one = torch.arange(6.0).reshape(3, 2)
    assert tree_sum(one, leaves=3).tolist() == [6.0, 9.0]
    assert [of.tolist() for of in tree_sum([one, one[:, 0]], leaves=3)] == [[6.0, 9.0], 6.0]
    assert tree_sum({"a": one}, leaves=3)["a"].tolist() == [6.0, 9.0]


def test_leaves_may_change_after_they_are_pushed():
    total, leaf = TreeSum(2), torch.ones(2)
    for _ in total.numbers:
        total.push([leaf])
        leaf.zero_()
    total.whole()[0].zero_()
    assert total.whole()[0].tolist() == [1.0, 1.0]
    total = TreeSum(1)
    total.push([torch.ones(2)])
    total.whole()[0].zero_()
    assert total.whole()[0].tolist() == [1.0, 1.0]


def test_leaves_that_do_not_fit_are_refused():
    with pytest.raises(headwater.InvalidArgument, match=r"of 3 leaves .* found the shape \[2\]"):
        tree_sum(torch.zeros(2), leaves=3)
    with pytest.raises(headwater.InvalidArgument, match="found NoneType; for a parameter without"):
        tree_sum([None], leaves=1)
    total = TreeSum(2)
    with pytest.raises(headwater.InvalidArgument, match=r"found \[0, 1\] missing"):
        total.whole()
    total = TreeSum(2)
    total.push(torch.zeros(3))
    with pytest.raises(
        headwater.InvalidArgument, match=r"one before, .*\[3\], found .*\[1\]; push"
    ):
        total.push(torch.zeros(1))
    total = TreeSum(2)
    total.push({"a": torch.zeros(3)})
    with pytest.raises(headwater.InvalidArgument, match="names, shapes and types"):
        total.push([torch.zeros(3)])
    with pytest.raises(headwater.InvalidArgument, match="found one of the layout torch.sparse_coo"):
        tree_sum(torch.eye(2).to_sparse(), leaves=2)
    total = TreeSum(1)
    total.push(torch.zeros(3))
    with pytest.raises(
        headwater.InvalidArgument, match="expected 1 pushes, one for each leaf of this"
    ):
        total.push(torch.zeros(3))


EXAMPLE = Path(__file__).parents[2] / "examples/elastic_torch.py"
STEPS = 30
IS_MEMBER = """
[[task]]
name = "is_member"
cell = { table = "customers", column = "member" }
sees_everything = true
"""


def start_example(world, store, folder, visible_gpus=""):
    """Starts the example on so many processes."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)]
    program = [str(EXAMPLE), str(store), "is_member", str(folder), str(STEPS)]
    return subprocess.Popen(
        [sys.executable, *(launcher if world > 1 else []), *program],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": visible_gpus},
        start_new_session=True,
    )  # fmt: skip


def digest_of_example(world, store, folder, visible_gpus=""):
    running = start_example(world, store, folder, visible_gpus)
    try:
        digest, error = running.communicate(timeout=200)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 0, error
    return digest.strip()


@pytest.fixture
def members(shop_folder, tmp_path):
    """The store of the shop with a task for the example."""
    schema, store_path = tmp_path / "schema.toml", tmp_path / "db"
    schema.write_text(SCHEMA + IS_MEMBER)
    headwater.prepare(shop_folder, schema, store_path, dimension=32)
    return store_path


def kill_after_a_checkpoint(running, folder):
    end = time.monotonic() + 100
    while not (folder / "checkpoint.pt").exists():
        assert running.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)
    running.kill()
    running.communicate()
    state = torch.load(folder / "checkpoint.pt", weights_only=True, map_location="cpu")
    assert len(state["losses"]) < STEPS


@pytest.mark.slow
def test_p9_a_model_of_pytorch_has_the_same_bits_on_any_processes_and_after_kills(
    members, tmp_path
):
    alone = digest_of_example(1, members, tmp_path / "1")
    assert len(alone) == 16
    for world in (2, 3):
        assert digest_of_example(world, members, tmp_path / str(world)) == alone
    kill_after_a_checkpoint(start_example(1, members, tmp_path / "killed"), tmp_path / "killed")
    assert digest_of_example(2, members, tmp_path / "killed") == alone


@pytest.mark.slow
def test_p2_a_model_of_pytorch_resumes_to_the_bit_on_a_gpu(members, tmp_path):
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU for PyTorch")
    whole = digest_of_example(1, members, tmp_path / "1", "0")
    killed = tmp_path / "killed"
    kill_after_a_checkpoint(start_example(1, members, killed, "0"), killed)
    assert digest_of_example(1, members, killed, "0") == whole

"""`quantiles`: the numbers that NumPy finds, the same bits whoever folds which rows."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from headwater import DataError, InvalidArgument, LimitExceeded, PlanMismatch, reduce
from headwater.reduce import PartitionedJob, QuantilesJob, Reduction, Worker, fold, merge

BIN = Path(sys.executable).parent
AT = ["0", "0.01", "0.25", "0.5", "0.875", "0.99", "1"]
DTYPES = {
    "float64": ("f64", np.float64),
    "float32": ("f32", np.float32),
    "float16": ("f16", np.float16),
    "bfloat16": ("bf16", ml_dtypes.bfloat16),
}
ENVIRONMENT = {
    **os.environ,
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def numbers(dtype="float64", rows=1003, seed=5):
    drawn = np.random.default_rng(seed).standard_normal((rows, 3))
    drawn[:, 1] = np.round(drawn[:, 1], 1)
    for place, odd in enumerate((np.nan, np.inf, -np.inf, -0.0, 5e-324)):
        drawn[7 + 101 * place :: 400, place % 3] = odd
    return drawn.astype(DTYPES[dtype][1])


def expected(rows, at):
    """NumPy's quantiles of the numbers of each column that are not NaN."""
    columns = [column[~np.isnan(column)] for column in rows.astype(np.float64).T]
    fractions = np.array([float(q) for q in at])
    return [np.quantile(column, fractions, method="inverted_cdf") for column in columns]


def reduced(*arguments, status=0, ranks=None):
    command = [BIN / "headwater-reduce", *arguments]
    if ranks is not None:
        command = [BIN / "mpirun", "--oversubscribe", "-n", ranks, *command]
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=120, env=ENVIRONMENT
    )
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout.splitlines()[-1]) if status == 0 else done.stderr


@pytest.mark.parametrize("dtype", DTYPES)
def test_quantiles_are_those_of_numpy(dtype):
    rows = numbers(dtype)
    found = reduce.quantiles(rows, at=AT, chunk_rows=64).value
    assert found["numbers"].tolist() == [len(rows) - n for n in np.isnan(rows).sum(axis=0)]
    assert found["nans"].tolist() == np.isnan(rows).sum(axis=0).tolist()
    for values, of_numpy in zip(found["quantiles"], expected(rows, AT), strict=True):
        assert (values == of_numpy).all()


def by_rank(column, q):
    """The number of rank ceil(q n), in whole numbers."""
    ordered = sorted(column)
    return ordered[max(-(-len(ordered) * q // 1), 1) - 1]


def test_quantiles_are_of_the_decimal_that_is_written():
    rows = np.arange(1, 101, dtype=np.float32)[:, None]
    written = ["0.07", "0.29", "0.57", "0.58", "0.070000000000000000000000000001", "7e-2"]
    found = reduce.quantiles(rows, at=written).value["quantiles"][0]
    assert found.tolist() == [by_rank(rows[:, 0], Fraction(q)) for q in written]
    # The product of floats is above 7.
    assert 0.07 * 100 > 7
    assert found[0] == 7
    for one in (0.07, np.float64(0.07), Decimal("0.07"), "0.07"):
        assert reduce.quantiles(rows, at=one).value["quantiles"].tolist() == [[7]]
    assert reduce.quantiles(rows, at=[0, 1]).value["quantiles"].tolist() == [[1, 100]]
    assert reduce.quantiles(rows, at=np.array([0.5])).value["quantiles"].tolist() == [[50]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_p1_quantiles_have_one_digest_for_any_order_and_chunk_size(tmp_path, dtype):
    rows = numbers(dtype)
    (tmp_path / "x.raw").write_bytes(rows.tobytes())
    form = ["--input", tmp_path / "x.raw", "--dtype", DTYPES[dtype][0], "--columns", 3]
    out = tmp_path / "q.json"
    told = reduced("quantiles", *form, "--chunk-rows", 64, "--at", *AT, "--out", out)
    whole = reduce.quantiles(rows, at=AT)
    assert told["digest"] == whole.digest
    assert told["passes"] == (4 if dtype == "float64" else 2)
    of_files = reduce.Matrix(tmp_path / "x.raw", dtype=dtype, columns=3)
    for again in (
        reduce.quantiles(of_files, at=AT, chunk_rows=100, threads=1),
        reduce.quantiles(np.flipud(rows), at=AT, chunk_rows=7, threads=3),
    ):
        assert again.digest == whole.digest
        assert again.value.tobytes() == whole.value.tobytes()
    columns = json.loads(out.read_text())["result"]
    for column, value in zip(columns, whole.value, strict=True):
        assert column["at"] == AT
        assert [float(v) for v in column["quantiles"]] == value["quantiles"].tolist()
        assert all(column[name] == value[name] for name in ("nulls", "nans", "numbers"))


def test_p1_passes_are_shared_by_workers_and_merged_in_any_order():
    rows = numbers()
    whole = reduce.quantiles(rows, at=AT)
    job = QuantilesJob(len(rows), 3, "rows of a test", 64, "float64", at=AT)
    passes = 0
    while job is not None:
        passes += 1
        portions = [fold(job, a, rows[a:b]) for a, b in [(0, 256), (256, 320), (320, 1003)]]
        reduction = Reduction(job)
        reduction.receive(merge(job, *portions[::-1]))
        other = Worker(job, threads=2)
        other.push(rows)
        assert reduction.receive(other.portion()) == 0
        if passes < 4:
            with pytest.raises(InvalidArgument, match="expected the last of 4 passes over the"):
                reduction.result()
        job = job.after(reduction)
    assert passes == 4
    assert reduction.digest == whole.digest
    assert reduction.result().tobytes() == whole.value.tobytes()


def test_quantiles_of_parts_are_those_of_all_rows():
    rows = numbers("float32")
    parts = [rows[:400], rows[:0], rows[400:]]
    job = QuantilesJob(None, 3, "rows in parts", at=AT)
    while job is not None:
        of_parts = PartitionedJob(job, parts=3)
        reduction = Reduction(of_parts)
        for part in (2, 0, 1):
            reduction.receive(fold(of_parts, part, parts[part]))
        job = job.after(reduction)
    assert reduction.digest == reduce.quantiles(rows, at=AT).digest


def test_p6_a_pass_takes_no_portions_and_reductions_of_another():
    rows = numbers("float32")
    job = QuantilesJob(len(rows), 3, "rows", at=[0.5])
    reduction = Reduction(job)
    with pytest.raises(InvalidArgument):
        job.after(reduction)
    reduction.receive(fold(job, 0, rows))
    after = job.after(reduction)
    with pytest.raises(PlanMismatch, match="pass"):
        Reduction(after).receive(reduction.portion())
    with pytest.raises(PlanMismatch, match='"at" was "0.5" and is now "0.25"'):
        Reduction(QuantilesJob(len(rows), 3, "rows", at=[0.25])).receive(reduction.portion())
    with pytest.raises(InvalidArgument, match="expected the reduction of this job"):
        after.after(reduction)
    changed = Reduction(after)
    changed.receive(fold(after, 0, rows + np.float32(1)))
    with pytest.raises(DataError, match="the rows have changed between the passes"):
        after.after(changed)


@pytest.mark.parametrize(
    "at", [[], [-0.1], [1.5], ["half"], [np.nan], [True], [None], ["1e-999"], [0.5, 2], None]
)
def test_quantiles_outside_0_to_1_are_refused(at):
    with pytest.raises(InvalidArgument, match="from 0 to 1|at least one quantile"):
        reduce.quantiles(numbers(), at=at)


def test_too_many_counts_are_refused_with_their_bytes():
    wide = np.zeros((2, 1100), np.float32)
    with pytest.raises(LimitExceeded, match="536870912 bytes of counts in pass 1, found 576"):
        reduce.quantiles(wide, at=0.5)


def test_quantiles_count_null_in_files_apart(tmp_path):
    values = [3.0, None, 1.0, None, 2.0, float("nan")]
    table = {"a": values, "empty": pyarrow.array([None] * 6, pyarrow.float64())}
    pyarrow.parquet.write_table(pyarrow.table(table), tmp_path / "t.parquet")
    out = tmp_path / "q.json"
    reduced("quantiles", "--input", tmp_path / "t.parquet", "--at", 0.5, 1, "--out", out)
    a, empty = json.loads(out.read_text())["result"]
    assert (a["name"], a["nulls"], a["nans"], a["numbers"]) == ("a", 2, 1, 3)
    assert (a["quantiles"], empty["quantiles"]) == ([2, 3], [None, None])
    found = reduce.quantiles(tmp_path / "t.parquet", at=[0.5, 1]).value
    assert found["nulls"].tolist() == [2, 6]
    assert np.isnan(found["quantiles"][1]).all()


@pytest.fixture
def long_rows(tmp_path):
    rows = np.random.default_rng(7).standard_normal((200_003, 5))
    np.save(tmp_path / "x.npy", rows)
    arguments = ["quantiles", "--input", tmp_path / "x.npy", "--at", 0.1, 0.5, "--threads", 1]
    return [*arguments, "--chunk-rows", 64, "--out", tmp_path / "q.json"], rows


@pytest.mark.slow
def test_p2_a_fold_resumes_in_the_interrupted_pass(tmp_path, long_rows):
    arguments, rows = long_rows
    expected = reduce.quantiles(rows, at=[0.1, 0.5]).digest
    kept = [*arguments, "--checkpoint-dir", tmp_path / "ck"]
    command = [BIN / "headwater-reduce", *kept, "--checkpoint-every", "1b", "--block-chunks", 64]
    process = subprocess.Popen([*map(str, command)], stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not list((tmp_path / "ck").glob("pass-3/*.portion")) and time.monotonic() < until:
        time.sleep(0.002)
    process.kill()
    assert process.wait() == -9
    assert list((tmp_path / "ck").glob("pass-3/*.portion"))
    assert "exists: continue from it with --resume" in reduced(*kept, status=1)
    other = [0.25 if part == 0.1 else part for part in kept]
    assert '"at" was "0.1 0.5" and is now "0.25 0.5"' in reduced(*other, "--resume", status=1)
    told = reduced(*kept, "--resume")
    assert told["digest"] == expected
    # The first two passes were read, and no row was folded again.
    assert told["resumed_nodes"] >= 3
    again = reduced(*kept, "--resume")
    assert (again["digest"], again["gflops"]) == (expected, None)


def test_checkpoints_of_a_later_pass_are_not_overwritten(tmp_path, long_rows):
    arguments, _ = long_rows
    kept = [*arguments, "--checkpoint-dir", tmp_path / "ck"]
    reduced(*kept)
    for checkpoint in (tmp_path / "ck" / "pass-1").iterdir():
        checkpoint.unlink()
    assert "pass-2" in reduced(*kept, status=1)


def spooled(arguments, spool, blocks=49):
    """Writes the job of quantiles to a spool, and returns the command of a process that works."""
    command = [BIN / "headwater-reduce", *arguments[:-2], "--block-chunks", 64, "--spool", spool]
    told = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True)
    assert f"{blocks} blocks in each of 4 passes" in told.stdout
    return [str(BIN / "headwater-reduce"), "work", "--threads", "1", "--spool", str(spool)]


@pytest.mark.slow
def test_p2_processes_share_the_passes_of_a_spool_and_some_are_killed(tmp_path, long_rows):
    arguments, rows = long_rows
    spool = tmp_path / "S"
    work = spooled(arguments, spool)
    fold = ["fold", "--spool", spool, "--out", tmp_path / "f.json"]
    assert "of 49 blocks are missing: 0, 1" in reduced(*fold, status=1)
    for begun in ("*.portion", "next-pass.lease", "pass-2/*.portion", "pass-2/pass-3/job.json"):
        children = [subprocess.Popen(work, stdout=subprocess.DEVNULL) for _ in range(2)]
        until = time.monotonic() + 60
        while not list(spool.glob(begun)) and time.monotonic() < until:
            if all(child.poll() is not None for child in children):
                break
        for child in children:
            child.kill()
            child.wait()
    told = [json.loads(subprocess.check_output(work)) for _ in range(2)]
    assert told[1] | {"seconds": 0, "cpu_seconds": 0} == {
        "rank": None, "of": None, "blocks": 196, "resumed_blocks": 196, "passes": 4, "threads": 1,
        "seconds": 0, "cpu_seconds": 0,
    }  # fmt: skip
    assert reduced(*fold)["digest"] == reduce.quantiles(rows, at=[0.1, 0.5]).digest
    left = {path.name for path in spool.rglob("*") if path.suffix != ".portion"}
    assert left == {"job.json", "job.plan", ".lock", "pass-2", "pass-3", "pass-4"}


def test_a_spool_of_quantiles_says_what_is_missing_and_repairs_a_pass(tmp_path, long_rows):
    arguments, rows = long_rows
    spool = tmp_path / "S"
    work = spooled(arguments, spool)[1:]
    fold = ["fold", "--spool", spool, "--out", tmp_path / "f.json"]
    told = reduced(*work, "--rank", 0, "--of", 2, status=1)
    assert "--rank: expected no rank for a statistic of several passes" in told
    reduced(*work)
    (spool / "pass-2").rename(tmp_path / "later")
    told = reduced(*fold, status=1)
    assert "pass 1 of 4 is complete, and no process has begun the next" in told
    assert f"`headwater-reduce work --spool {spool}` goes on" in told
    (tmp_path / "later").rename(spool / "pass-2")
    told = reduced("fold", "--spool", spool / "pass-2", "--out", tmp_path / "f.json", status=1)
    assert "expected the folder of the first pass, found that of pass 2" in told
    told = reduced(*fold[:-1], spool / "pass-2" / "block-000000000099.portion", status=1)
    assert "is a file of the spool" in told
    sealed = spool / "pass-2" / "job.json"
    whole = sealed.read_bytes()
    sealed.write_bytes(whole[:-1])
    told = reduced(*work, status=3)
    assert f"or remove {spool}/pass-2, the folder of this pass, and run the same command" in told
    sealed.write_bytes(whole)
    block = next(spool.glob("*.portion"))
    block.write_bytes(block.read_bytes()[:-1])
    assert "run work again for block" in reduced(*fold, status=3)
    assert reduced(*work)["resumed_blocks"] == 195
    assert reduced(*fold)["digest"] == reduce.quantiles(rows, at=[0.1, 0.5]).digest


def test_p6_rows_that_change_between_the_passes_of_a_spool_are_refused(tmp_path):
    shared = Path("/dev/shm")
    if not shared.is_dir():
        pytest.skip("no /dev/shm, where a store through a map changes no time of a file")
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        path, spool = Path(folder) / "x.npy", tmp_path / "S"
        np.save(path, np.random.default_rng(1).random((60_000, 3)))
        rows = ["--input", path, "--chunk-rows", 512]
        work = spooled(["quantiles", *rows, "--at", 0.5, "--out", "Q"], spool, blocks=2)[1:]
        reduced(*work)
        shutil.rmtree(spool / "pass-2/pass-3/pass-4")
        # A row that is in no sample of the file, and far from the medians.
        before, changed = reduce.Matrix(path).data, np.load(path, mmap_mode="r+")
        for row in range(100, 60_000, 1000):
            kept = changed[row].copy()
            changed[row] = kept + 1
            if reduce.Matrix(path).data == before:
                break
            changed[row] = kept
        else:
            raise AssertionError("each row is in a sample")
        changed.flush()
        reduced(*work)
        told = reduced("fold", "--spool", spool, "--out", tmp_path / "f.json", status=1)
    assert "expected the rows of pass 4 to be those of the pass before, found others" in told


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_p1_quantiles_have_one_digest_for_any_number_of_ranks(tmp_path, long_rows, ranks):
    arguments, rows = long_rows
    told = reduced(*arguments, ranks=ranks)
    assert (told["ranks"], told["passes"], told["lost_ranks"]) == (ranks, 4, [])
    assert told["digest"] == reduce.quantiles(rows, at=[0.1, 0.5]).digest
    told = reduced(*arguments, "--audit", 500, ranks=ranks)
    assert told["audited_blocks"] > 0


def ranks_of(folder: Path, rank: int) -> list[int]:
    """The processes of one rank of the mpirun whose files are in `folder`."""
    own, found = str(folder).encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
            arguments = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if f"OMPI_COMM_WORLD_RANK={rank}".encode() in variables and own in arguments:
            found.append(int(process.name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("pass_number", [1, 2, 4])
def test_p2_quantiles_survive_a_rank_that_is_killed_in_any_pass(tmp_path, long_rows, pass_number):
    arguments, rows = long_rows
    command = [BIN / "mpirun", "--oversubscribe", "--with-ft", "ulfm", "-n", 3]
    command += [BIN / "headwater-reduce", *arguments, "--checkpoint-dir", tmp_path / "ck"]
    command += ["--checkpoint-every", "20b", "--block-chunks", 16]
    process = subprocess.Popen(
        [*map(str, command)], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    until = time.monotonic() + 60
    pattern = f"pass-{pass_number}/*.portion"
    while not list((tmp_path / "ck").glob(pattern)) and time.monotonic() < until:
        time.sleep(0.002)
    for killed in ranks_of(tmp_path, 2):
        os.kill(killed, 9)
    output, _ = process.communicate(timeout=120)
    told = json.loads(output.splitlines()[-1])
    assert told["digest"] == reduce.quantiles(rows, at=[0.1, 0.5]).digest
    assert told["lost_ranks"] == [2]


@pytest.mark.slow
def test_p2_p4_killed_quantiles_go_on_with_other_ranks(tmp_path, long_rows):
    arguments, rows = long_rows
    kept = [*arguments, "--checkpoint-dir", tmp_path / "ck", "--block-chunks", 16]
    command = [BIN / "mpirun", "--oversubscribe", "-n", 3, BIN / "headwater-reduce", *kept]
    process = subprocess.Popen(
        [*map(str, command), "--checkpoint-every", "20b"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
    )
    until = time.monotonic() + 60
    while not list((tmp_path / "ck").glob("pass-2/*.portion")) and time.monotonic() < until:
        time.sleep(0.002)
    for killed in ranks_of(tmp_path, 0):
        os.kill(killed, 9)
    process.wait(timeout=60)
    told = reduced(*kept, "--resume", ranks=2)
    assert told["digest"] == reduce.quantiles(rows, at=[0.1, 0.5]).digest
    assert told["resumed_nodes"] > 0

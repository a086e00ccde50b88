"""`headwater-reduce` with too little memory, or too little space on a disk."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time

import numpy as np
import pytest

from test_mpi import ENVIRONMENT, REDUCE, mpirun, reduced

pytestmark = pytest.mark.slow

COLUMNS = 8192
# A triangle of sums is 268 MB, and a rank has a few at a time.
MEBIBYTE = 1 << 20


def ended(command, address_space=None):
    """Runs a command to its end within 60 s, with a limit on its address space."""
    command = [str(part) for part in command]
    if address_space is not None:
        # By a shell: a limit set between fork and exec needs a fork, which JAX warns of.
        limit = f'ulimit -v {address_space // 1024} && exec "$@"'
        command = ["sh", "-c", limit, "sh", *command]
    begin = time.monotonic()
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, env=ENVIRONMENT)
    assert time.monotonic() - begin < 60
    return run


def told_once(run, *words):
    """Asserts that a run failed with one line that contains `words`, and without a panic."""
    told = [line for line in run.stderr.splitlines() if line.startswith("headwater-reduce: ")]
    assert run.returncode == 1, (run.returncode, run.stdout, run.stderr)
    assert len(told) == 1, run.stderr
    for word in words:
        assert word in told[0], told[0]
    for word in ("panicked", "memory allocation of"):
        assert word not in run.stderr, run.stderr
    return told[0]


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A fold with more columns than a small memory can hold."""
    folder = tmp_path_factory.mktemp("wide")
    rows = np.random.default_rng(1).standard_normal((48, COLUMNS)).astype(np.float32)
    np.save(folder / "x.npy", rows)
    fold = ["--input", folder / "x.npy", "--out", folder / "o.npy", "--threads", 1]
    return [*fold, "--chunk-rows", 16]


@pytest.fixture(scope="module")
def begun(wide, tmp_path_factory):
    """A checkpoint of two of the three chunks, and the digest of the whole."""
    folder = tmp_path_factory.mktemp("begun")
    kept = ["--checkpoint-dir", folder, "--checkpoint-every", "1b", "--block-chunks", 1]
    digest = reduced("gram", *wide, *kept)["digest"]
    checkpoint, _ = sorted(folder.glob("*.portion"))
    return checkpoint, digest


# With each limit another allocation fails.
@pytest.mark.parametrize("mebibytes", [400, 700, 1000])
def test_lack_of_memory_for_columns_is_reported_and_keeps_the_checkpoint(
    tmp_path, wide, begun, mebibytes
):
    checkpoint, digest = begun
    folder = tmp_path / "ck"
    folder.mkdir()
    # A link in place of a copy of 268 MB: checkpoints are replaced, never changed.
    os.link(checkpoint, folder / checkpoint.name)
    kept = ["--checkpoint-dir", folder, "--out", tmp_path / "g.npy", "--resume"]
    fold = ["gram", *wide[:2], *wide[4:], *kept]
    told = told_once(ended([REDUCE, *fold], mebibytes * MEBIBYTE), "memory")
    assert str(folder) in told
    assert list(folder.glob("*.portion")) == [folder / checkpoint.name]
    assert not (tmp_path / "g.npy").exists()
    said = reduced(*fold)
    assert (said["digest"], said["resumed_nodes"]) == (digest, 1)


def test_under_mpirun_lack_of_memory_ends_all_ranks_with_one_error(wide):
    for mebibytes in (900, 1200):
        fold = mpirun(3, "gram", *wide)
        told_once(ended(fold, mebibytes * MEBIBYTE), "cannot allocate", "columns")


@pytest.mark.parametrize("statistic", [["exponents"], ["distinct", "--precision", 15]])
def test_partials_too_large_for_the_memory_are_reported(tmp_path, wide, statistic):
    fold = [*wide[:2], *wide[4:], "--out", tmp_path / "o.json"]
    run = ended([REDUCE, *statistic, *fold], 250 * MEBIBYTE)
    told_once(run, "chunks 0 to 0", "cannot allocate", "use fewer columns or threads")


@pytest.fixture(scope="module", params=["npy", "parquet"])
def tall(request, tmp_path_factory):
    """A fold whose one chunk, 154 MB, lies in two files, and its digest."""
    folder = tmp_path_factory.mktemp("tall")
    rows = np.random.default_rng(1).integers(0, 50, (300_000, 32)).astype(float)
    files = [folder / f"{name}.{request.param}" for name in "ab"]
    for file in files:
        if request.param == "npy":
            np.save(file, rows)
            continue
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        columns = {
            f"c{at}": pyarrow.array(column, mask=column == 0) for at, column in enumerate(rows.T)
        }
        parquet.write_table(pyarrow.table(columns), file, row_group_size=20_000)
    fold = ["moments", "--input", *files, "--chunk-rows", 600_000, "--threads", 1]
    return fold, reduced(*fold, "--out", folder / "m.json")["digest"]


@pytest.mark.parametrize("mebibytes", [250, 300, 350, 400, 450, 500])
def test_chunks_of_two_files_too_large_for_the_memory_are_reported(tmp_path, tall, mebibytes):
    fold, digest = tall
    run = ended([REDUCE, *fold, "--out", tmp_path / "m.json"], mebibytes * MEBIBYTE)
    # 250 MiB cannot hold the rows, which take 154 MB more when those of two files are joined.
    if run.returncode == 0 and mebibytes > 250:
        assert digest in run.stdout
        return
    told = told_once(run, "cannot allocate", "smaller chunks")
    assert "rows 0 to 599999 of " in told or ".parquet: " in told, told
    assert not (tmp_path / "m.json").exists()


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of 100 kB, which is unmounted after the test."""
    folder = tmp_path / "small disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.fixture
def fold(tmp_path):
    """A fold whose result has 80 kB and whose checkpoints have at least 40 kB, and its digest."""
    rows = np.random.default_rng(2).standard_normal((20_003, 100)).astype(np.float32)
    np.save(tmp_path / "x.npy", rows)
    fold = ["gram", "--input", tmp_path / "x.npy", "--chunk-rows", 8, "--block-chunks", 2]
    fold = [*fold, "--threads", 1]
    return fold, reduced(*fold, "--out", tmp_path / "g.npy")["digest"]


RANKS = [pytest.param(None, id="alone"), pytest.param(3, id="3 ranks")]


def as_ranks(ranks, arguments):
    return [REDUCE, *arguments] if ranks is None else mpirun(ranks, *arguments)


@contextlib.contextmanager
def filled(folder, count):
    """Fills a small disk except for `count` bytes."""
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    (folder / "ballast").write_bytes(bytes(max(free - count, 0)))
    yield
    (folder / "ballast").unlink()


@pytest.mark.parametrize("ranks", RANKS)
def test_p2_a_full_disk_leaves_a_checkpoint_to_resume_from(tmp_path, small_disk, fold, ranks):
    fold, digest = fold
    kept = ["--out", tmp_path / "g2.npy", "--checkpoint-dir", small_disk, "--checkpoint-every", 0]
    run = ended(as_ranks(ranks, [*fold, *kept]))
    words = [f"{small_disk}/fold-", "No space left on device", "free some space there"]
    told_once(run, *words, f"continue with --resume from {small_disk}")
    left = sorted(path.name for path in small_disk.iterdir() if path.name != ".lock")
    assert left, "nothing is there to go on from"
    assert all(name.endswith(".portion") for name in left), left
    assert not (tmp_path / "g2.npy").exists()
    # The fold resumes on a larger disk.
    roomy = tmp_path / "roomy"
    roomy.mkdir()
    for name in left:
        (roomy / name).write_bytes((small_disk / name).read_bytes())
    said = reduced(*fold, "--out", tmp_path / "g2.npy", "--checkpoint-dir", roomy, "--resume")
    assert (said["digest"], said["resumed_nodes"] > 0) == (digest, True)


@pytest.mark.parametrize("ranks", RANKS)
def test_p2_after_a_full_disk_the_result_is_written_without_folding(
    tmp_path, small_disk, fold, ranks
):
    fold, digest = fold
    out = small_disk / "g.npy"
    kept = ["--out", out, "--checkpoint-dir", tmp_path / "ck"]
    with filled(small_disk, 50_000):
        run = ended(as_ranks(ranks, [*fold, *kept]))
        words = [str(out), "No space left on device", "free some space there"]
        told_once(run, *words, f"continue with --resume from {tmp_path / 'ck'}")
        assert [path.name for path in small_disk.iterdir()] == ["ballast"]
        # Without checkpoints, the message does not suggest --resume.
        run = ended(as_ranks(ranks, [*fold, *kept[:2]]))
        assert "--resume" not in told_once(run, *words)
    said = reduced(*fold, *kept, "--resume")
    assert (said["digest"], said["resumed_nodes"]) == (digest, bin(-(-20_003 // 8)).count("1"))
    assert (np.load(out) == np.load(tmp_path / "g.npy")).all()

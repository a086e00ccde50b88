"""`headwater-reduce` in one process: results, checkpoints, spools and messages."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

REDUCE = str(Path(sys.executable).parent / "headwater-reduce")


def reduce(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [REDUCE, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


def done(*arguments: object, **options: object) -> dict:
    """Runs a command to its end; returns the JSON object on its last line."""
    finished = reduce(*arguments, **options)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1])


@pytest.fixture
def matrix(tmp_path):
    rows = np.random.default_rng(7).standard_normal((5003, 31))
    np.save(tmp_path / "x.npy", rows)
    return rows


def test_the_gram_matches_numpy(tmp_path, matrix):
    said = done("gram", "--input", tmp_path / "x.npy", "--out", tmp_path / "g.npy")
    gram = np.load(tmp_path / "g.npy")
    assert np.array_equal(gram, gram.T)
    scale = np.abs(matrix).T @ np.abs(matrix)
    assert np.all(np.abs(gram - matrix.T @ matrix) <= 1e-12 * scale)
    assert (said["rows"], said["columns"], said["resumed_nodes"]) == (5003, 31, 0)
    beside = json.loads((tmp_path / "g.json").read_text())
    assert {name: beside[name] for name in said} == said
    assert beside["job"]["chunk_rows"] == 4096


def test_p1_files_and_threads_change_no_bit(tmp_path, matrix):
    matrix[3, 4], matrix[900, 0], matrix[5002, 30] = np.inf, np.nan, -0.0
    np.save(tmp_path / "x.npy", matrix)
    np.save(tmp_path / "a.npy", matrix[:1234])
    np.save(tmp_path / "b.npy", matrix[1234:])
    (tmp_path / "x.raw").write_bytes(matrix.tobytes())
    out = ["--out", tmp_path / "g.npy", "--chunk-rows", 100]
    raw = ["--input", tmp_path / "x.raw", "--dtype", "f64", "--columns", 31]
    ways = [
        ["--input", tmp_path / "x.npy", "--threads", 1],
        ["--input", tmp_path / "x.npy", "--threads", 2],
        ["--input", tmp_path / "a.npy", tmp_path / "b.npy", "--threads", 3],
        raw,
    ]
    said = [done("gram", *way, *out) for way in ways]
    assert len({one["digest"] for one in said}) == 1
    assert said[0]["nonfinite_columns"] == 2
    other = done("gram", *ways[0], "--out", tmp_path / "g.npy", "--chunk-rows", 101)
    assert other["digest"] != said[0]["digest"]


def test_a_terminal_shows_the_speed(tmp_path, matrix):
    ours, theirs = pty.openpty()
    command = [REDUCE, "gram", "--input", tmp_path / "x.npy", "--out", tmp_path / "g.npy"]
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, env=environment):
        os.close(theirs)
        said = b""
        # Reading a terminal whose other end is closed raises an error.
        with contextlib.suppress(OSError):
            while some := os.read(ours, 4096):
                said += some
    os.close(ours)
    assert b"folding rows" in said
    assert re.search(rb" ([0-9]\.[0-9]|[0-9]+|[0-9]+\.[0-9] [kMG]) rows/s ", said), said
    assert b"GFLOP/s" in said
    assert reduce(*command[1:]).stderr == ""


def test_narrow_numbers_widen_exactly(tmp_path):
    rows = np.random.default_rng(1).integers(-50, 50, (300, 5)).astype(np.float64) / 4
    digests = set()
    for dtype in (np.float64, np.float32, np.float16):
        np.save(tmp_path / "x.npy", rows.astype(dtype))
        said = done("gram", "--input", tmp_path / "x.npy", "--out", tmp_path / "g.npy")
        digests.add(said["digest"])
        assert np.array_equal(np.load(tmp_path / "g.npy"), rows.T @ rows)
    assert len(digests) == 1


def test_p2_a_fold_killed_five_times_has_the_same_digest(tmp_path):
    rows = np.random.default_rng(3).standard_normal((120_000, 200)).astype(np.float32)
    np.save(tmp_path / "x.npy", rows)
    fold = ["gram", "--input", tmp_path / "x.npy", "--chunk-rows", 64, "--threads", 1]
    straight = done(*fold, "--out", tmp_path / "straight.npy")
    kept = ["--out", tmp_path / "g.npy", "--checkpoint-dir", tmp_path / "ck"]
    kept += ["--checkpoint-every", 0, "--resume"]
    killed = 0
    for patience in (0.05, 0.1, 0.15, 0.2, 0.25):
        child = subprocess.Popen([REDUCE, *map(str, [*fold, *kept])], stderr=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("ck/*.portion")) and child.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(patience)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        killed += child.returncode == -signal.SIGKILL
    assert killed > 0
    resumed = done(*fold, *kept)
    assert resumed["resumed_nodes"] > 0
    assert resumed["digest"] == straight["digest"]
    assert (tmp_path / "g.npy").read_bytes() == (tmp_path / "straight.npy").read_bytes()
    # Nothing else is left of the killed ones.
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"x.npy", "straight.npy", "straight.json", "g.npy", "g.json", "ck"}
    kept = sorted(path.suffix or path.name for path in (tmp_path / "ck").iterdir())
    assert kept in ([".lock", ".portion"], [".lock", ".portion", ".portion"])


def test_p2_processes_without_ranks_share_a_spool_and_one_is_killed(tmp_path):
    rows = np.random.default_rng(4).standard_normal((120_000, 200)).astype(np.float32)
    np.save(tmp_path / "x.npy", rows)
    fold = ["gram", "--input", tmp_path / "x.npy", "--chunk-rows", 64]
    straight = done(*fold, "--threads", 1, "--out", tmp_path / "straight.npy")
    spool = tmp_path / "S"
    assert reduce(*fold, "--spool", spool, "--block-chunks", 16).returncode == 0
    work = [REDUCE, "work", "--spool", spool, "--threads", 1]
    children = [
        subprocess.Popen([*map(str, work)], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    while not list(spool.glob("*.portion")):
        time.sleep(0.002)
    children[0].send_signal(signal.SIGKILL)
    said = [child.communicate(timeout=120)[0] for child in children]
    told = [json.loads(of) for of in said[1:]]
    assert [of["blocks"] for of in told] == [118, 118]
    assert told[0]["rank"] is None
    again = done("work", "--spool", spool)
    assert again["resumed_blocks"] == 118
    folded = done("fold", "--spool", spool, "--out", tmp_path / "g.npy")
    assert folded["digest"] == straight["digest"]
    kinds = {path.suffix or path.name for path in spool.iterdir()}
    assert kinds == {".json", ".plan", ".portion", ".lock"}


def test_ctrl_c_keeps_a_checkpoint(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((800_000, 100), np.float32))
    fold = ["gram", "--input", tmp_path / "x.npy", "--chunk-rows", 4, "--threads", 1]
    kept = ["--out", tmp_path / "g.npy", "--checkpoint-dir", tmp_path / "ck"]
    child = subprocess.Popen(
        [REDUCE, *map(str, [*fold, *kept, "--checkpoint-every", 0])],
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list(tmp_path.glob("ck/*.portion")):
        assert child.poll() is None
        time.sleep(0.005)
    child.send_signal(signal.SIGINT)
    _, error = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "continue with --resume" in error
    assert "Traceback" not in error
    again = reduce(*fold, *kept)
    assert again.returncode == 1
    assert "--resume, or remove" in again.stderr
    assert done(*fold, *kept, "--resume")["resumed_nodes"] > 0


def test_a_second_run_in_a_folder_is_refused_until_the_first_ends(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((800_000, 100), np.float32))
    fold = ["gram", "--input", tmp_path / "x.npy", "--chunk-rows", 4, "--threads", 1]
    kept = ["--checkpoint-dir", tmp_path / "ck", "--checkpoint-every", 0]
    first = [REDUCE, *map(str, [*fold, *kept, "--out", tmp_path / "g.npy"])]
    child = subprocess.Popen(first, stderr=subprocess.PIPE)
    while not list(tmp_path.glob("ck/*.portion")):
        assert child.poll() is None
        time.sleep(0.005)
    # The first run is paused, so that it does not end by itself.
    child.send_signal(signal.SIGSTOP)
    second = [*fold, *kept, "--resume", "--out", tmp_path / "h.npy"]
    try:
        refused = reduce(*second)
        waiting = subprocess.Popen(
            [REDUCE, *map(str, second)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(timeout=1)
    finally:
        child.kill()
        child.communicate()
    assert refused.returncode == 1
    assert f"another process is at work in {tmp_path / 'ck'}; wait until" in refused.stderr
    said, error = waiting.communicate(timeout=120)
    assert waiting.returncode == 0, error
    assert json.loads(said)["resumed_nodes"] > 0


def test_a_lock_of_another_user_works_and_a_missing_lock_is_reported():
    # Root may write everywhere, so as root another user resumes.
    nobody = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    folders = Path(REDUCE).resolve().parents
    if nobody and not all(folder.stat().st_mode & 0o001 for folder in folders):
        pytest.skip(f"another user than root cannot enter the folders of {REDUCE}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        np.save(folder / "x.npy", np.ones((400, 31), np.float32))
        (folder / "out").mkdir()
        checkpoints = folder / "ck"
        fold = ["gram", "--input", folder / "x.npy", "--chunk-rows", 16]
        fold += ["--checkpoint-dir", checkpoints, "--resume", "--out", folder / "out" / "g.npy"]
        digest = done(*fold)["digest"]
        (folder / "out" / "g.npy").unlink()
        (folder / "out" / "g.json").unlink()
        (folder / "out").chmod(0o777)
        (checkpoints / ".lock").chmod(0o444)
        checkpoints.chmod(0o555)
        again = reduce(*fold, **nobody)
        assert again.returncode == 0, again.stderr
        assert json.loads(again.stdout)["digest"] == digest
        checkpoints.chmod(0o755)
        (checkpoints / ".lock").unlink()
        checkpoints.chmod(0o555)
        told = reduce(*fold, **nobody)
        checkpoints.chmod(0o755)
        assert told.returncode == 1
        assert "let this user read and write there, or choose another folder" in told.stderr
        assert f"opening {checkpoints / '.lock'}: Permission denied" in told.stderr


def test_a_result_never_overwrites_the_files_of_its_spool(tmp_path, matrix):
    own = ["job.plan", "block-000000000003.portion", "rank-0-of-1.cursor"]
    for statistic, names in [("gram", [*own, "job.npy"]), ("moments", ["job.json"])]:
        spool = tmp_path / statistic
        fold = [statistic, "--input", tmp_path / "x.npy", "--spool", spool]
        assert reduce(*fold).returncode == 0
        done("work", "--spool", spool, "--rank", 0, "--of", 1)
        kept = {path: path.read_bytes() for path in spool.iterdir()}
        for name in names:
            told = reduce("fold", "--spool", spool, "--out", spool / name)
            assert told.returncode == 1
            words = "of the spool; choose another name", "of this kind; choose another name"
            assert any(word in told.stderr for word in words), told.stderr
        assert {path: path.read_bytes() for path in spool.iterdir()} == kept
        out = spool / "result.npy" if statistic == "gram" else spool / "result.json"
        digest = done("fold", "--spool", spool, "--out", out)["digest"]
        assert done("fold", "--spool", spool, "--out", out)["digest"] == digest


def test_the_person_who_folds_names_the_place_of_the_result(tmp_path, matrix):
    spool, elsewhere = tmp_path / "S", tmp_path / "elsewhere"
    fold = ["gram", "--input", tmp_path / "x.npy", "--spool", spool]
    both = reduce(*fold, "--out", tmp_path / "g.npy")
    assert both.returncode == 1
    assert "leave out --out, and give it to `headwater-reduce fold`" in both.stderr
    assert not spool.exists()
    assert reduce(*fold).returncode == 0
    done("work", "--spool", spool, "--rank", 0, "--of", 1)
    assert str(tmp_path / "x.npy") in (spool / "job.json").read_text()
    assert "--out" in reduce("fold", "--spool", spool).stderr
    elsewhere.mkdir()
    said = done("fold", "--spool", Path("..") / "S", "--out", "g.npy", cwd=elsewhere)
    assert said["out"] == str(elsewhere / "g.npy")
    assert sorted(path.name for path in elsewhere.iterdir()) == ["g.json", "g.npy"]
    straight = done("gram", "--input", tmp_path / "x.npy", "--out", tmp_path / "g.npy")
    assert straight["out"] == str(tmp_path / "g.npy")
    assert straight["digest"] == said["digest"]
    moments = ["moments", "--input", tmp_path / "x.npy", "--out", tmp_path / "m"]
    assert done(*moments)["out"] == str(tmp_path / "m.json")
    told = reduce(*moments[:-1], tmp_path / "other.npy")
    assert told.returncode == 1
    assert f"such as {tmp_path / 'other.json'}" in told.stderr
    assert not (tmp_path / "other.json").exists()


def test_p6_a_changed_job_of_a_spool_is_refused_and_nothing_is_written(tmp_path, matrix):
    # Every bit is flipped in tests/reducer/spool.rs; here are the commands.
    spool = tmp_path / "S"
    assert reduce("gram", "--input", tmp_path / "x.npy", "--spool", spool).returncode == 0
    done("work", "--spool", spool, "--rank", 0, "--of", 1)
    out = tmp_path / "g.npy"
    work = ["work", "--spool", spool, "--rank", 0, "--of", 1]
    for name in ("job.json", "job.plan"):
        path = spool / name
        whole = path.read_bytes()
        damaged = [whole[: len(whole) // 2], whole + b"\n", b""]
        for place in range(0, len(whole), 29):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << place % 8
            damaged.append(bytes(flipped))
        for changed in damaged:
            path.write_bytes(changed)
            before = sorted(tmp_path.rglob("*"))
            for command in (work, ["fold", "--spool", spool, "--out", out]):
                told = reduce(*command)
                assert told.returncode == 3, told.stderr
                assert "to another folder" in told.stderr or "another kind of file" in told.stderr
            assert sorted(tmp_path.rglob("*")) == before
        path.write_bytes(whole)
    done("fold", "--spool", spool, "--out", out)


@pytest.mark.parametrize(
    ("statistic", "name", "written"),
    [
        ("gram", "mine.csv", "mine.csv"),
        ("gram", "mine.npy", "mine.npy"),
        ("moments", "mine.csv", "mine.csv.json"),
        ("moments", "mine.json", "mine.json"),
    ],
)
def test_a_result_overwrites_no_file_except_an_earlier_result(
    tmp_path, matrix, statistic, name, written
):
    fold = [statistic, "--input", tmp_path / "x.npy", "--out", tmp_path / name]
    written = tmp_path / written
    written.write_text("a,b")
    refused = reduce(*fold)
    assert refused.returncode == 1, refused.stderr
    assert f"would overwrite {written}, which is not an earlier" in refused.stderr
    assert written.read_text() == "a,b"
    # An empty file is nobody's work, and an earlier result is replaced.
    written.write_text("")
    for _ in range(2):
        assert reduce(*fold).returncode == 0
        assert written.stat().st_size > 3


def test_a_result_overwrites_no_json_except_an_earlier_summary(tmp_path, matrix):
    fold = ["gram", "--input", tmp_path / "x.npy", "--out", tmp_path / "g.npy"]
    beside = tmp_path / "g.json"
    beside.write_text('{"digest": "of something else"}')
    words = "which is not an earlier summary of this kind; choose another name, or remove that file"
    refused = reduce(*fold)
    assert (refused.returncode, words in refused.stderr) == (1, True), refused.stderr
    beside.unlink()
    spool = tmp_path / "S"
    assert reduce(*fold[:-2], "--spool", spool).returncode == 0
    done("work", "--spool", spool, "--rank", 0, "--of", 1)
    done("moments", "--input", tmp_path / "x.npy", "--out", beside)
    kept = beside.read_bytes()
    of_spool = ["fold", "--spool", spool, "--out", tmp_path / "g.npy"]
    refused = reduce(*of_spool)
    assert (refused.returncode, words in refused.stderr) == (1, True), refused.stderr
    assert beside.read_bytes() == kept
    assert not (tmp_path / "g.npy").exists()
    beside.unlink()
    done(*of_spool)
    done(*of_spool)


def test_a_result_needs_a_file_name(tmp_path, matrix):
    (tmp_path / "res").mkdir()
    for command in ("gram", "moments", "manifest"):
        for out in (f"{tmp_path}/res/", f"{tmp_path}/res/.", f"{tmp_path}/res/..", "/"):
            told = reduce(command, "--input", tmp_path / "x.npy", "--out", out)
            assert told.returncode == 1, (command, out)
            assert f"--out {out}: expected the name of a file" in told.stderr, told.stderr
    assert list((tmp_path / "res").iterdir()) == []


def test_resumed_rows_do_not_count_for_the_speed(tmp_path, matrix):
    fold = ["gram", "--input", tmp_path / "x.npy", "--out", tmp_path / "g.npy"]
    fold += ["--chunk-rows", 50, "--block-chunks", 1, "--threads", 1]
    kept = ["--checkpoint-dir", tmp_path / "ck", "--checkpoint-every", 0, "--resume"]
    assert done(*fold, *kept)["gflops"] > 0
    assert done(*fold, *kept)["gflops"] is None
    newest, older = sorted(tmp_path.glob("ck/*.portion"), reverse=True)
    newest.unlink()
    said = done(*fold, *kept)
    rows = 5003 - 50 * int(older.stem.removeprefix("fold-"))
    assert 0 < rows < 5003
    operations = said["gflops"] * 1e9 * max(said["seconds"], 1e-3)
    assert operations == pytest.approx(31 * 32 * rows)


def test_an_audit_by_one_rank_is_refused(tmp_path, matrix):
    fold = ["gram", "--input", tmp_path / "x.npy", "--out", tmp_path / "g.npy"]
    told = reduce(*fold, "--audit", 100)
    assert told.returncode == 1
    assert (
        "--audit folds blocks on two ranks and compares them: expected at least 2 ranks, found 1"
        in told.stderr
    )
    assert not (tmp_path / "g.npy").exists()


def test_a_fold_of_a_spool_ends_at_the_first_ctrl_c(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((300, 512), np.float32))
    spool = tmp_path / "S"
    fold = ["gram", "--input", tmp_path / "x.npy", "--spool", spool]
    assert reduce(*fold, "--chunk-rows", 1, "--block-chunks", 1).returncode == 0
    done("work", "--spool", spool, "--rank", 0, "--of", 1)
    child = subprocess.Popen(
        [REDUCE, "fold", "--spool", str(spool), "--out", str(tmp_path / "g.npy")],
        stderr=subprocess.PIPE,
        text=True,
    )
    # It has begun to read the 300 portions of 1 MB.
    read = re.compile(r"rchar: (\d+)")
    while int(read.search(Path(f"/proc/{child.pid}/io").read_text())[1]) < 20_000_000:
        assert child.poll() is None
    child.send_signal(signal.SIGINT)
    _, error = child.communicate(timeout=60)
    assert child.returncode == 130, error
    assert "interrupted; nothing was written" in error
    assert not (tmp_path / "g.npy").exists()


def test_p6_foreign_checkpoints_are_refused_and_damaged_ones_skipped(tmp_path, matrix):
    fold = ["gram", "--input", tmp_path / "x.npy", "--out", tmp_path / "g.npy", "--threads", 1]
    kept = ["--checkpoint-dir", tmp_path / "ck", "--checkpoint-every", 0, "--resume"]
    digest = done(*fold, *kept, "--chunk-rows", 50)["digest"]
    other = reduce(*fold, *kept, "--chunk-rows", 60)
    assert other.returncode == 1
    assert '"chunk_rows" was 50 and is now 60' in other.stderr
    np.save(tmp_path / "x.npy", matrix + 1)
    other = reduce(*fold, *kept, "--chunk-rows", 50)
    assert other.returncode == 1
    assert '"data" was' in other.stderr
    np.save(tmp_path / "x.npy", matrix)
    # The same rows in a file with a later date.
    kept.append("--same-data")
    newest, _older = sorted(tmp_path.glob("ck/*.portion"), reverse=True)
    newest.write_bytes(newest.read_bytes()[:-1])
    again = reduce(*fold, *kept, "--chunk-rows", 50)
    assert again.returncode == 0
    assert "skipped a checkpoint" in again.stderr
    assert newest.name in again.stderr
    assert json.loads(again.stdout)["digest"] == digest
    # A changed version byte is damage like any other, and so is an error of the disk.
    whole = newest.read_bytes()
    newest.write_bytes(whole[:8] + b"\x04" + whole[9:])
    again = reduce(*fold, *kept, "--chunk-rows", 50)
    assert again.returncode == 0
    assert f"{newest.name}: the portion is damaged" in again.stderr
    newest.unlink()
    newest.symlink_to("/proc/self/mem")
    again = reduce(*fold, *kept, "--chunk-rows", 50)
    assert again.returncode == 0, again.stderr
    assert f"skipped a checkpoint: reading {newest}: Input/output error" in again.stderr
    assert json.loads(again.stdout)["digest"] == digest
    for path in tmp_path.glob("ck/*.portion"):
        path.write_bytes(b"x")
    again = reduce(*fold, *kept, "--chunk-rows", 50)
    assert again.returncode == 3
    assert "every checkpoint is damaged" in again.stderr


def test_invalid_input_is_named(tmp_path, matrix):
    x, out = tmp_path / "x.npy", ["--out", tmp_path / "g.npy"]
    np.save(tmp_path / "f.npy", np.asfortranarray(matrix))
    np.save(tmp_path / "i.npy", matrix.astype(np.int32))
    np.save(tmp_path / "e.npy", matrix[:0])
    (tmp_path / "cut.npy").write_bytes(x.read_bytes()[:-1])
    for arguments, status, words in [
        (["--input", tmp_path / "no.npy"], 1, "no.npy"),
        (["--input", tmp_path / "f.npy"], 1, "found Fortran order (column by column)"),
        (["--input", tmp_path / "i.npy"], 1, "convert the array"),
        (["--input", tmp_path / "e.npy"], 1, "expected at least one row, found none"),
        (["--input", tmp_path / "cut.npy"], 3, "cut off"),
        (["--input", x, "--dtype", "f32"], 1, "leave out --dtype"),
        (["--input", x, "--columns", 31], 2, "--dtype"),
        (["--input", x, "--chunk-rows", 0], 2, "0"),
        (["--input", x, "--resume"], 2, "--checkpoint-dir"),
        (["--inptu", x], 2, "--input"),
    ]:
        told = reduce("gram", *arguments, *out)
        assert told.returncode == status, (arguments, told.stderr)
        assert words in told.stderr, told.stderr
        assert "panicked" not in told.stderr
    assert not (tmp_path / "g.npy").exists()
    told = reduce("gram", "--input", x, "--out", tmp_path / "nowhere" / "g.npy")
    assert told.returncode == 1
    assert "nowhere" in told.stderr


def test_p6_rows_that_a_memory_map_changes_between_ranks_are_refused(tmp_path):
    """The writer has the pages of the file in its memory all the time, as `np.memmap` does."""
    x, spool = tmp_path / "x.npy", tmp_path / "spool"
    rows = np.lib.format.open_memmap(x, "w+", np.float64, (40_000, 8))
    rows[:] = 1
    rows.flush()
    before = x.stat().st_ctime_ns
    time.sleep(0.05)
    rows[0, 0] = 1
    if x.stat().st_ctime_ns == before:
        pytest.skip("this file system does not tell of stores through a memory map")
    # The pages that were stored to are not clean any more.
    rows[:] = 1
    job = ["gram", "--input", x, "--chunk-rows", 100, "--block-chunks", 4]
    assert reduce(*job, "--spool", spool).returncode == 0
    done("work", "--spool", spool, "--rank", 0, "--of", 2)
    time.sleep(0.05)
    rows[7777, 3] = 7
    done("work", "--spool", spool, "--rank", 1, "--of", 2)
    fold = reduce("fold", "--spool", spool, "--out", tmp_path / "s.npy")
    assert "another version of" in fold.stderr
    assert not (tmp_path / "s.npy").exists()


def test_p6_rows_that_change_between_ranks_or_before_a_resume_are_refused(tmp_path, matrix):
    """A change that no sample of the file shows, with the time of writing set back."""
    x, spool, checkpoints = tmp_path / "x.npy", tmp_path / "spool", tmp_path / "checkpoints"
    job = ["gram", "--input", x, "--chunk-rows", 100, "--block-chunks", 4]
    expected = done(*job, "--out", tmp_path / "g.npy", "--checkpoint-dir", checkpoints)
    assert reduce(*job, "--spool", spool).returncode == 0
    done("work", "--spool", spool, "--rank", 0, "--of", 2)

    before = x.stat()
    with x.open("r+b") as file:
        # Between two samples: the first 4 KiB are one.
        file.seek(128 + 50 * 31 * 8)
        file.write(np.float64(3.5).tobytes())
    os.utime(x, ns=(before.st_atime_ns, before.st_mtime_ns))

    for command in (
        ["work", "--spool", spool, "--rank", 0, "--of", 2],
        [*job, "--out", tmp_path / "g.npy", "--checkpoint-dir", checkpoints, "--resume"],
    ):
        refused = reduce(*command)
        assert refused.returncode != 0
        assert "folded from another version of a file: from " in refused.stderr
        assert "x.npy" in refused.stderr
        assert "--same-data" in refused.stderr
        refused = reduce(*command, "--same-data")
        assert refused.returncode != 0
        assert "are not those that were folded before" in refused.stderr
    done("work", "--spool", spool, "--rank", 1, "--of", 2)
    fold = reduce("fold", "--spool", spool, "--out", tmp_path / "s.npy")
    assert "another version of" in fold.stderr
    assert not (tmp_path / "s.npy").exists()

    # The rows as they were, in another file.
    np.save(tmp_path / "copy.npy", matrix)
    (tmp_path / "copy.npy").replace(x)
    resume = [*job, "--out", tmp_path / "g.npy", "--checkpoint-dir", checkpoints, "--resume"]
    assert "another version of" in reduce(*resume).stderr
    same = done(*resume, "--same-data")
    assert (same["digest"], same["rows_digest"]) == (expected["digest"], expected["rows_digest"])
    assert same["compared_rows"] == 5003

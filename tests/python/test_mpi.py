"""`headwater-reduce` under mpirun and over a spool: the bits of one process, also after kills."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow

BIN = Path(sys.executable).parent
REDUCE = str(BIN / "headwater-reduce")
ENVIRONMENT = {
    **os.environ,
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def mpirun(ranks: int, *arguments: object, survives: bool = False) -> list[str]:
    """The command that runs `headwater-reduce` on some ranks."""
    command = [str(BIN / "mpirun"), "--oversubscribe", "-n", str(ranks)]
    command += ["--with-ft", "ulfm"] if survives else []
    return [*command, REDUCE, *map(str, arguments)]


def finished(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=ENVIRONMENT)


def done(command: list[str]) -> dict:
    """Runs a command to its end; returns the JSON object on its last line."""
    run = finished(command)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def reduced(*arguments: object) -> dict:
    return done([REDUCE, *map(str, arguments)])


@pytest.fixture
def fold(tmp_path):
    """The arguments of a fold, and its digest by one process."""
    rows = np.random.default_rng(7).standard_normal((20_003, 31)).astype(np.float32)
    np.save(tmp_path / "x.npy", rows)
    arguments = ["gram", "--input", tmp_path / "x.npy", "--out", tmp_path / "g.npy"]
    arguments += ["--chunk-rows", 64, "--threads", 1]
    return arguments, reduced(*arguments)["digest"]


@pytest.fixture(scope="module")
def long_rows(tmp_path_factory):
    """The arguments of a fold that takes some seconds and can be killed, and its digest."""
    folder = tmp_path_factory.mktemp("long")
    rows = np.random.default_rng(3).standard_normal((400_000, 200)).astype(np.float32)
    np.save(folder / "x.npy", rows)
    arguments = ["gram", "--input", folder / "x.npy"]
    arguments += ["--chunk-rows", 8, "--block-chunks", 64, "--threads", 1]
    return arguments, reduced(*arguments, "--out", folder / "g.npy")["digest"]


@pytest.fixture
def long_fold(tmp_path, long_rows):
    arguments, digest = long_rows
    return [*arguments, "--out", tmp_path / "g.npy"], digest


def rank_of(process: Path) -> int | None:
    """The rank of a `headwater-reduce` that mpirun has started."""
    try:
        if not (process / "cmdline").read_bytes().startswith(REDUCE.encode()):
            return None
        variables = (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    prefix = b"OMPI_COMM_WORLD_RANK="
    return next((int(v[len(prefix) :]) for v in variables if v.startswith(prefix)), None)


def ranks_below(process: subprocess.Popen) -> dict[int, int]:
    """The process of each rank that this mpirun has started."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        rank = rank_of(entry)
        if rank is not None:
            stat = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            parents[int(entry.name)] = (rank, int(stat[1]))
    return {rank: pid for pid, (rank, parent) in parents.items() if parent == process.pid}


def begun(command: list[str], checkpoints: Path, count: int) -> subprocess.Popen:
    """Begins a run, and waits until it has written its first checkpoint."""
    run = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    deadline = time.monotonic() + 60
    while not list(checkpoints.glob("*.portion")) or len(ranks_below(run)) < count:
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return run


def spooled(arguments: list) -> tuple[list[str], str]:
    """The arguments of a fold for a spool, which has no --out, and that file."""
    place = arguments.index("--out")
    rest = arguments[:place] + arguments[place + 2 :]
    return [*map(str, rest)], str(arguments[place + 1])


def in_own_folders(command: list[str], folder: Path) -> list[str]:
    """Returns the same command, with each rank in the folder of its number."""
    script = 'cd "$1/$OMPI_COMM_WORLD_RANK" && shift && exec "$@"'
    place = command.index(REDUCE)
    return [*command[:place], "sh", "-c", script, "sh", str(folder), *command[place:]]


def test_p1_one_digest_for_any_number_of_ranks(tmp_path, fold):
    arguments, digest = fold
    for ranks in (1, 2, 3, 4):
        said = done(mpirun(ranks, *arguments))
        assert (said["digest"], said["ranks"]) == (digest, ranks)
    audited = done(mpirun(3, *arguments, "--audit", 1000))
    assert audited["digest"] == digest
    assert audited["audited_blocks"] > 0


def test_p1_a_spool_gives_the_same_digest(tmp_path, fold):
    arguments, digest = fold
    spool = tmp_path / "spool"
    of_spool, out = spooled(arguments)
    laid = finished([REDUCE, *of_spool, "--spool", str(spool), "--block-chunks", "8"])
    assert laid.returncode == 0, laid.stderr
    assert "work --spool" in laid.stdout
    early = finished([REDUCE, "fold", "--spool", str(spool), "--out", out])
    assert early.returncode == 1
    assert "40 of 40 blocks are missing: 0, 1, 2" in early.stderr
    some = reduced("work", "--spool", spool, "--rank", 1, "--of", 2)
    assert (some["blocks"], some["resumed_blocks"]) == (20, 0)
    # Another number of ranks continues from the finished blocks.
    for rank in (0, 1, 2):
        reduced("work", "--spool", spool, "--rank", rank, "--of", 3)
    portion = spool / "block-000000000007.portion"
    portion.write_bytes(portion.read_bytes()[:-1])
    torn = finished([REDUCE, "fold", "--spool", str(spool), "--out", out])
    assert torn.returncode == 3
    assert "block-000000000007.portion; run work again for block 7" in torn.stderr
    again = finished([REDUCE, "work", "--rank", "0", "--of", "1", "--spool", str(spool)])
    assert "folding it again" in again.stderr
    assert json.loads(again.stdout)["resumed_blocks"] == 39
    said = reduced("fold", "--spool", spool, "--out", out)
    assert said["digest"] == digest
    assert said["resumed_nodes"] == 40


def test_damaged_and_misplaced_blocks_are_named_and_folded_again(tmp_path, fold):
    arguments, digest = fold
    spool = tmp_path / "spool"
    of_spool, out = spooled(arguments)
    laid = finished([REDUCE, *of_spool, "--spool", str(spool), "--block-chunks", "64"])
    assert laid.returncode == 0, laid.stderr
    work = ["work", "--spool", spool, "--rank", 0, "--of", 1]
    assert reduced(*work)["blocks"] == 5
    blocks = [spool / f"block-{block:012}.portion" for block in range(6)]
    whole = blocks[1].read_bytes()

    def copied():
        blocks[2].write_bytes(whole)

    def of_another_version():
        blocks[1].write_bytes(whole[:8] + b"\x04" + whole[9:])

    def unreadable():
        blocks[3].unlink()
        blocks[3].symlink_to("/proc/self/mem")

    for damage, block, status, words in [
        (copied, 2, 3, "expected the sums of chunks 128 to 191, found those of chunks 64 to 127"),
        (of_another_version, 1, 3, "its bytes do not match its digest"),
        (unreadable, 3, 1, "Input/output error"),
    ]:
        damage()
        told = finished([REDUCE, "fold", "--spool", str(spool), "--out", out])
        assert told.returncode == status, told.stderr
        assert f"{blocks[block]}; run work again for block {block}: " in told.stderr
        assert words in told.stderr
        again = finished([REDUCE, *map(str, work)])
        assert f"{blocks[block]}" in again.stderr
        assert words in again.stderr
        assert "folding it again" in again.stderr
        assert json.loads(again.stdout)["resumed_blocks"] == 4
        assert reduced("fold", "--spool", spool, "--out", out)["digest"] == digest
    blocks[5].write_bytes(whole)
    told = finished([REDUCE, "fold", "--spool", str(spool), "--out", out])
    assert f"{blocks[5]}: expected a block below 5, found block 5; remove the file" in told.stderr


def test_p2_a_job_survives_a_killed_worker(tmp_path, long_fold):
    arguments, digest = long_fold
    kept = ["--checkpoint-dir", tmp_path / "ck", "--checkpoint-every", 0]
    run = begun(mpirun(3, *arguments, *kept, survives=True), tmp_path / "ck", 3)
    os.kill(ranks_below(run)[2], signal.SIGKILL)
    out, error = run.communicate(timeout=120)
    assert out, error
    said = json.loads(out.splitlines()[-1])
    assert said["digest"] == digest
    assert said["lost_ranks"] == [2]


@pytest.mark.parametrize("victims", [[0], [1], [0, 1, 2]])
def test_p2_p4_a_killed_job_resumes_with_other_ranks(tmp_path, long_fold, victims):
    arguments, digest = long_fold
    kept = ["--checkpoint-dir", tmp_path / "ck", "--checkpoint-every", 0, "--resume"]
    run = begun(mpirun(3, *arguments, *kept), tmp_path / "ck", 3)
    processes = ranks_below(run)
    for victim in victims:
        os.kill(processes[victim], signal.SIGKILL)
    _, error = run.communicate(timeout=120)
    assert run.returncode != 0, error
    said = done(mpirun(2, *arguments, *kept))
    assert said["digest"] == digest
    assert said["resumed_nodes"] > 0
    # Nothing else is left of the killed ones.
    files = sorted(path.suffix or path.name for path in (tmp_path / "ck").iterdir())
    assert files in ([".lock", ".portion"], [".lock", ".portion", ".portion"])


def test_sigterm_ends_all_ranks_and_keeps_a_checkpoint(tmp_path, long_fold):
    arguments, digest = long_fold
    kept = ["--checkpoint-dir", tmp_path / "ck", "--checkpoint-every", 0]
    run = begun(mpirun(3, *arguments, *kept), tmp_path / "ck", 3)
    for victim in ranks_below(run).values():
        os.kill(victim, signal.SIGTERM)
    _, error = run.communicate(timeout=60)
    assert run.returncode == 130, error
    assert error.count("continue with --resume") == 1, error
    said = done(mpirun(2, *arguments, *kept, "--resume"))
    assert said["digest"] == digest
    assert said["resumed_nodes"] > 0


def test_ctrl_c_at_mpirun_prints_one_message_and_keeps_a_checkpoint(tmp_path, long_fold):
    arguments, digest = long_fold
    kept = ["--checkpoint-dir", tmp_path / "ck", "--checkpoint-every", 0]
    command = mpirun(3, *arguments, *kept)
    child, terminal = pty.fork()
    if child == 0:
        os.execve(command[0], command, ENVIRONMENT)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("ck/*.portion")):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.write(terminal, b"\x03")
    said = b""
    # Reading a terminal whose other end is closed raises an error.
    with contextlib.suppress(OSError):
        while some := os.read(terminal, 4096):
            said += some
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0
    words = f"headwater-reduce: interrupted after .* are kept in {tmp_path / 'ck'}; "
    words += "continue with --resume"
    assert len(re.findall(words, said.decode())) == 1, said
    assert done(mpirun(2, *arguments, *kept, "--resume"))["digest"] == digest


def test_under_mpirun_only_rank_0_writes_and_folds_a_spool(tmp_path, fold):
    arguments, digest = fold
    of_spool, out = spooled(arguments)
    laid = finished(mpirun(3, *of_spool, "--spool", tmp_path / "S"))
    assert laid.returncode == 0, laid.stderr
    assert laid.stdout.count("blocks; next") == 1
    told = "has nothing to do, because rank 0 alone does this command"
    assert laid.stderr.count(told) == 2
    reduced("work", "--spool", tmp_path / "S", "--rank", 0, "--of", 1)
    folded = finished(mpirun(3, "fold", "--spool", tmp_path / "S", "--out", out))
    assert folded.stdout.count(digest) == 1, folded.stderr
    assert folded.stderr.count(told) == 2


def test_under_mpirun_each_rank_lists_its_own_files(tmp_path):
    for rank in range(3):
        (tmp_path / str(rank)).mkdir()
        np.save(tmp_path / str(rank) / "x.npy", np.ones((rank + 1, 2)))
    command = mpirun(3, "manifest", "--input", "x.npy", "--out", "x.json")
    listed = finished(in_own_folders(command, tmp_path))
    assert listed.returncode == 0, listed.stderr
    for rank in range(3):
        listed = json.loads((tmp_path / str(rank) / "x.json").read_text())
        assert listed["files"][0]["rows"] == rank + 1


def test_the_seconds_of_a_fold_exclude_the_start_of_mpi(tmp_path, fold):
    arguments, _ = fold
    # MPI takes a second to start. The best of three runs counts, because the machine may be busy.
    assert min(done(mpirun(2, *arguments))["seconds"] for _ in range(3)) < 0.8


def test_invalid_input_is_reported_once_and_ends_all_ranks(tmp_path):
    for wrong, status, words in [
        (["--input", tmp_path / "no.npy"], 1, "no.npy"),
        (["--chunk-rows", 0], 2, "--chunk-rows"),
        (["--inptu", "x"], 2, "--input"),
    ]:
        begin = time.monotonic()
        run = finished(mpirun(3, "gram", *wrong, "--out", tmp_path / "g.npy", *wrong))
        assert run.returncode == status, run.stderr
        assert run.stderr.count("headwater-reduce: ") + run.stderr.count("error: ") == 1, run.stderr
        assert words in run.stderr
        assert "panicked" not in run.stderr
        assert time.monotonic() - begin < 30


def test_a_rank_with_invalid_arguments_leaves_the_error_to_rank_0():
    # If this rank exits, mpirun ends the job, perhaps before rank 0 has printed its error.
    rank_1 = {**os.environ, "OMPI_COMM_WORLD_RANK": "1"}
    run = subprocess.Popen(
        [REDUCE, "gram", "--inptu", "x"], stderr=subprocess.PIPE, text=True, env=rank_1
    )
    with pytest.raises(subprocess.TimeoutExpired):
        run.wait(timeout=1)
    run.terminate()
    _, error = run.communicate(timeout=10)
    assert (run.returncode, error) == (2, "")


def test_the_checkpoints_of_disagreeing_ranks_are_removed(tmp_path):
    rows = np.random.default_rng(7).standard_normal((20_003, 31)).astype(np.float32)
    for rank in range(2):
        (tmp_path / str(rank)).mkdir()
        # A byte outside of the samples that identify a file.
        rows.view(np.uint8).reshape(-1)[20_000] ^= 64 * rank
        np.save(tmp_path / str(rank) / "x.npy", rows)
    here = f'cd {tmp_path}/$OMPI_COMM_WORLD_RANK && exec "$@"'
    command = [str(BIN / "mpirun"), "--oversubscribe", "-n", "2", "sh", "-c", here, "sh", REDUCE]
    command += ["gram", "--input", "x.npy", "--out", str(tmp_path / "g.npy"), "--chunk-rows", "64"]
    # Without --same-data another file is refused before its blocks are compared.
    command += ["--threads", "1", "--block-chunks", "4", "--audit", "1000", "--same-data"]
    command += ["--checkpoint-dir", str(tmp_path / "ck"), "--checkpoint-every", "1b"]
    run = finished(command)
    assert run.returncode == 3, run.stderr
    assert "to different bits" in run.stderr
    assert f"the checkpoints in {tmp_path / 'ck'} were removed" in run.stderr
    assert list((tmp_path / "ck").glob("*.portion")) == []
    assert not (tmp_path / "g.npy").exists()


def test_a_file_that_one_rank_lacks_ends_the_job_with_its_name(tmp_path):
    rows = np.random.default_rng(7).standard_normal((20_003, 31)).astype(np.float32)
    np.save(tmp_path / "x.npy", rows)
    # The folder of the last rank is empty.
    for rank in range(3):
        (tmp_path / str(rank)).mkdir()
        if rank < 2:
            (tmp_path / str(rank) / "x.npy").symlink_to(tmp_path / "x.npy")
    command = mpirun(3, "gram", "--input", "x.npy", "--out", tmp_path / "g.npy")
    command = in_own_folders(command, tmp_path)
    run = finished(command)
    assert run.returncode == 1
    assert "headwater-reduce: rank 2: opening x.npy" in run.stderr, run.stderr
    assert run.stderr.count("headwater-reduce: ") == 1, run.stderr
    # The last rank has another file of the same name.
    np.save(tmp_path / "2" / "x.npy", np.zeros((20_003, 31), np.float32))
    run = finished(command)
    assert run.returncode == 1
    assert "headwater-reduce: rank 2: " in run.stderr
    assert '"data" is' in run.stderr, run.stderr
    assert "give every rank the same files and options" in run.stderr


def test_p1_ranks_with_only_their_own_files_give_the_same_digest(tmp_path):
    rows = np.random.default_rng(5).standard_normal((64 * 100 + 7, 20))
    pieces = np.split(rows, [64 * 40, 64 * 41])
    shards = [tmp_path / str(rank) / f"shard-{rank}.npy" for rank in range(3)]
    manifests = []
    for rank, piece in enumerate(pieces):
        shards[rank].parent.mkdir()
        np.save(shards[rank], piece)
        manifests.append(shards[rank].with_suffix(".json"))
        listed = finished(
            [REDUCE, "manifest", "--input", str(shards[rank]), "--out", str(manifests[-1])]
        )
        assert listed.returncode == 0, listed.stderr
    # The manifests are copied to one folder, and joined there.
    together = tmp_path / "together"
    together.mkdir()
    brought = [together / path.name for path in manifests]
    for path, copy in zip(manifests, brought, strict=True):
        copy.write_bytes(path.read_bytes())
    whole = together / "all.json"
    joined = finished([REDUCE, "manifest", "--input", *map(str, brought), "--out", str(whole)])
    assert joined.returncode == 0, joined.stderr
    for rank in range(3):
        (tmp_path / str(rank) / "all.json").write_bytes(whole.read_bytes())
    fold = ["--chunk-rows", 64, "--threads", 1, "--out", tmp_path / "g.npy"]
    digest = reduced("gram", "--input", *shards, *fold)["digest"]
    command = in_own_folders(mpirun(3, "gram", "--input", "all.json", *fold), tmp_path)
    assert done(command)["digest"] == digest
    shards[1].unlink()
    lacking = finished(command)
    assert lacking.returncode == 1
    assert "no rank can read rows 2560 to 2623" in lacking.stderr, lacking.stderr
    twice = [REDUCE, "manifest", "--input", whole, whole, "--out", tmp_path / "twice.json"]
    assert "listed twice" in finished(list(map(str, twice))).stderr


def test_a_rank_that_stands_still_is_named_and_mpirun_ends(tmp_path, fold):
    arguments, digest = fold
    # Many blocks, so that the rank has orders when it is stopped.
    kept = ["--checkpoint-dir", tmp_path / "ck", "--checkpoint-every", 0, "--block-chunks", 1]
    rows = np.random.default_rng(3).standard_normal((200_000, 200)).astype(np.float32)
    np.save(tmp_path / "x.npy", rows)
    digest = reduced(*arguments)["digest"]
    run = begun(mpirun(3, *arguments, *kept), tmp_path / "ck", 3)
    os.kill(ranks_below(run)[2], signal.SIGSTOP)
    begin = time.monotonic()
    # 60 s until its blocks go to others, 10 s until it is ended.
    out, error = run.communicate(timeout=110)
    said = json.loads(out.splitlines()[-1])
    assert said["digest"] == digest, error
    assert said["late_ranks"] == [2]
    words = r"warning: rank 2 has not sent the block that begins with chunk \d+ within 60 s"
    assert re.search(words, error), error
    assert "the result is written; ranks that do not answer: 2" in error
    assert np.load(tmp_path / "g.npy").shape == (200, 200)
    assert 55 < time.monotonic() - begin < 100


def test_each_rank_folds_its_own_blocks_and_has_a_cursor(tmp_path, fold):
    arguments, _ = fold
    said = done(mpirun(3, *arguments, "--block-chunks", 2))
    assert "cursors" not in said
    cursors = json.loads((tmp_path / "g.json").read_text())["cursors"]
    assert {cursor["world"] for cursor in cursors} == {3}
    assert all(0 < cursor["ordinal"] <= 53 for cursor in cursors), cursors


# What a launcher sets for rank 1 of 4, when no MPI of ours connects the ranks.
STEP = {"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4"}
LAUNCHERS = {
    "mpirun": {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"},
    "srun --mpi=none": STEP,
    "srun --mpi=pmix": {**STEP, "PMIX_RANK": "1"},
    "srun --mpi=pmi2": {**STEP, "PMI_RANK": "1", "PMI_SIZE": "4"},
    "mpiexec.hydra": {"PMI_RANK": "1", "PMI_SIZE": "4"},
    "MVAPICH2": {"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "4"},
    "PALS": {"PALS_RANKID": "1", "PMI_RANK": "1", "PMI_SIZE": "4"},
    "flux": {"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "4"},
    "jsrun": {"JSM_NAMESPACE_RANK": "1", "JSM_NAMESPACE_SIZE": "4"},
    "torchrun": {"RANK": "1", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "none"},
}
OF_THE_PACKAGE = [sys.executable, "-c", "from headwater._cli import reduce; exit(reduce())"]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks_that_no_mpi_connects_are_refused(tmp_path, fold, launcher):
    arguments, _ = fold
    (tmp_path / "g.npy").unlink()
    (tmp_path / "g.json").unlink()
    environment = {**ENVIRONMENT, **LAUNCHERS[launcher]}
    for command in ([REDUCE], OF_THE_PACKAGE):
        run = subprocess.run(
            [*command, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=60,
            env=environment,
        )
        assert run.returncode == 1, run.stderr
        assert "rank 1 of 4" in run.stderr
        assert "each of 4 ranks would fold all rows" in run.stderr
        remedy = "srun --mpi=pmix" if command == [REDUCE] else "built without MPI"
        assert remedy in run.stderr
    assert not (tmp_path / "g.npy").exists()


def test_a_process_that_no_launcher_started_folds_alone(fold):
    arguments, digest = fold
    for alone in (
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "64", "SLURM_JOB_ID": "7"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1"},
        {"RANK": "3", "WORLD_SIZE": "8"},
    ):
        run = subprocess.run(
            [REDUCE, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=60,
            env={**ENVIRONMENT, **alone},
        )
        assert run.returncode == 0, run.stderr
        assert json.loads(run.stdout)["digest"] == digest


def test_a_build_without_mpi_refuses_several_ranks(tmp_path, fold):
    arguments, _ = fold
    script = "import sys; from headwater._cli import reduce; sys.exit(reduce())"
    command = mpirun(2, *arguments)
    place = command.index(REDUCE)
    command[place : place + 1] = [sys.executable, "-c", script]
    run = finished(command)
    assert run.returncode == 1
    assert "built without MPI" in run.stderr

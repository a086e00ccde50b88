"""Changes the Python code in small ways, one at a time, and lists the changes that no test notices.

    python tests/mutants/run.py [--share N] [--jobs N] [NAME ...]

NAME is a file such as `confluence/model.py`; default: all files that have tests below. `--share N`
takes each Nth change, always the same ones. Survivors that `survivors.md` names with a reason are
accepted; others end the command with status 1.

The tests run in copies of the repository, so the working tree is never changed.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from mutations import Mutant, mutants
from record import accepted, check, is_chosen, report

ROOT = Path(__file__).parents[2]
_SERVER = Path(__file__).parent / "server.py"
RECORD = Path(__file__).parent / "survivors.md"
_TWIN = ["tests/confluence/test_twin.py::test_the_model_equals_its_twin"]
_RECORDED = ["tests/confluence/test_optimizer.py", "-k", "recorded"]
_MODEL = "tests/confluence/test_model.py"
_CHECKPOINT = "tests/confluence/test_checkpoint.py"
_ROLLCALL = "tests/confluence/test_rollcall.py"
_START = "tests/confluence/test_start.py"
_COMMAND = "tests/confluence/test_train_command.py"
_MASKED = "tests/confluence/test_masked.py"
_MICROBATCHES = "tests/confluence/test_microbatches.py"
_TREE_SUM = "tests/python/test_tree_sum.py"

# Without those that start other processes or wait.
_QUICK = "not ctrl_c and not fork and not memory and not thread and not killed and not command"

# The tests of each file, in turns: the quick ones that notice most come first.
TESTS: dict[str, list[list[str]]] = {
    "confluence/model.py": [
        ["tests/confluence/test_twin.py", "-k", "equals_its_twin and not store or norms"],
        _RECORDED,
        [_MODEL, _MASKED, "-k", "nan_in_cells or null_target or each_boolean or last_cell"],
    ],
    "confluence/attention.py": [_TWIN, [_MODEL, "-k", "softmax or summed or structured"]],
    "confluence/structured.py": [
        [_MODEL, "-k", "narrowest or fewest or longest"],
        [f"{_TWIN[0]}[{{'attention': 'structured'}}]"],
        [_MODEL, "-k", "structured or order_of_cells"],
    ],
    "confluence/loss.py": [
        [
            _MODEL,
            _MASKED,
            "-k",
            "losses or null_target or weight_zero or label_is or label_of or one_number "
            "or other_columns",
        ]
    ],
    "confluence/optimizer.py": [
        [_MODEL, "-k", "rate_rises or muon_updates"],
        ["tests/confluence/test_optimizer.py", "-k", "numpy or near_nothing"],
        _RECORDED,
    ],
    "confluence/step.py": [
        ["tests/confluence/test_step.py"],
        [_MODEL, _MASKED, "-k", "outputs or loss_is_that or of_a_pool or only_a"],
        _RECORDED,
    ],
    "confluence/batch.py": [
        ["tests/confluence/test_batch.py"],
        _TWIN,
        [_MODEL, "-k", "compact or calendar or text_vectors"],
    ],
    "confluence/feed.py": [["tests/confluence/test_feed.py", "tests/confluence/test_config.py"]],
    "confluence/microbatches.py": [
        ["tests/confluence/test_step.py", _MICROBATCHES, "-k", "microbatches"]
    ],
    "confluence/run_folder.py": [["tests/confluence/test_run_folder.py"]],
    "confluence/peers.py": [["tests/confluence/test_watch.py"]],
    "confluence/meeting_place.py": [
        ["tests/confluence/test_meeting_place.py"],
        ["tests/confluence/test_peers.py", "-k", "without_an_address"],
    ],
    "confluence/members.py": [
        [
            "tests/confluence/test_members.py",
            "-k",
            "mean_of_cat or own_in_its or or_of_a_run",
        ]
    ],
    "confluence/parallel.py": [["tests/confluence/test_parallel.py"]],
    "confluence/run.py": [["tests/confluence/test_run.py"]],
    "confluence/starting.py": [["tests/confluence/test_initial.py"]],
    "confluence/report.py": [
        ["tests/confluence/test_report.py", "-k", "not page"],
        ["tests/confluence/test_report.py", "-k", "page"],
    ],
    "confluence/epochs.py": [["tests/confluence/test_epochs.py", "-k", "not a_run_decides"]],
    "confluence/pace.py": [["tests/confluence/test_pace.py"]],
    "confluence/progress.py": [["tests/confluence/test_progress.py"]],
    "confluence/status.py": [
        ["tests/confluence/test_status.py"],
        ["tests/confluence/test_notebook.py", "-k", "one_bar_for or has_no_bar"],
    ],
    "confluence/sinks.py": [
        ["tests/confluence/test_sinks.py", "-k", "are_named or hides or continues or with_its"]
    ],
    "confluence/speed.py": [["tests/confluence/test_speed.py"]],
    "confluence/memory.py": [[_START, "-k", "same_arguments or no_use or told_of"]],
    "confluence/smoke.py": [
        ["tests/confluence/test_smoke.py", "-k", "in_turn"],
        [_COMMAND, "-k", "smoke"],
    ],
    "confluence/compile_cache.py": [
        [_START, "-k", "(kept or cores or of_one_kind) and not tunables"]
    ],
    "confluence/orbax_noise.py": [[_START, "-k", "leaves_behind"]],
    "confluence/xla_flags.py": [[_START, "-k", "deterministic"]],
    "confluence/cli.py": [
        [_COMMAND],
        ["tests/confluence/test_starting.py", "-k", "inherited"],
    ],
    "confluence/cli_draft.py": [
        [_COMMAND, "-k", "draft or contradicts or without_jax or init"],
        ["tests/confluence/test_init.py", "-k", "presets"],
    ],
    "confluence/cli_predict.py": [
        ["tests/confluence/test_predict_command.py"],
        [_COMMAND, "-k", "without_jax"],
    ],
    "confluence/cli_inspect.py": [["tests/confluence/test_predict_command.py", "-k", "inspect"]],
    "confluence/api.py": [["tests/confluence/test_functions.py"]],
    "confluence/choices.py": [["tests/confluence/test_choices.py"]],
    "confluence/training.py": [
        ["tests/confluence/test_train.py"],
        ["tests/confluence/test_trainer.py"],
        ["tests/confluence/test_training.py", "-k", "gradients or the_best"],
    ],
    "confluence/checkpoint.py": [
        [_CHECKPOINT, "-k", "json or stay_what or only_folders or without_checkp or told_from"],
        [_CHECKPOINT, "-k", "copied or older or half or p6 or shapes or space or are_kept or best"],
        # Without those that train.
        [_CHECKPOINT, "-k", "not p2_a_run and not two_processes and not in_an_evaluation"],
    ],
    "confluence/patience.py": [["tests/confluence/test_patience.py", "-k", "over_after"]],
    "confluence/metrics.py": [["tests/confluence/test_metrics.py"]],
    "confluence/rollcall.py": [
        [_ROLLCALL, "-k", "equal_ranks or laid_out or coordinator_is or all_ranks or listens"],
        [_ROLLCALL, "-k", "next_one or in_parts or numbers or missing or in_use or elsewhere"],
        [_ROLLCALL, "-k", "not before_writing and not bounded and not stops_on"],
    ],
    "headwater/sampler.py": [
        [
            "tests/python/test_sampler.py",
            "tests/python/test_databases.py",
            "tests/python/test_pools.py",
            "-k",
            _QUICK,
        ],
        ["tests/confluence/test_config.py", "-k", "defaults"],
    ],
    "headwater/events.py": [["tests/python/test_events.py", "-k", _QUICK]],
    "headwater/grain.py": [
        [
            "tests/confluence/test_event_adaptors.py",
            "tests/confluence/test_adaptors.py",
            "-k",
            "not own_pipeline and not elastic and not orbax and not jax_ and not forked",
        ],
        ["tests/confluence/test_event_adaptors.py", "-k", "forked"],
    ],
    "headwater/jax.py": [
        ["tests/confluence/test_attention_masks.py"],
        ["tests/confluence/test_adaptors.py", "-k", "test_jax"],
        [_TREE_SUM, _MICROBATCHES, "-k", "three_devices or microbatches"],
        ["tests/python/test_jax.py"],
    ],
    "headwater/_tree.py": [[_TREE_SUM, "-k", "shares_follow or nodes_are"]],
    "headwater/masks.py": [["tests/python/test_masks.py", "-k", "attention"]],
    "headwater/orbax.py": [["tests/confluence/test_adaptors.py", "-k", "orbax"]],
    "headwater/tables.py": [["tests/python/test_tables.py", "-k", _QUICK]],
    "headwater/_frames.py": [
        ["tests/python/test_sources.py", "tests/python/test_events.py", "-k", "column or in_memory"]
    ],
    "headwater/reduce.py": [["tests/python/test_gram_job.py", "-k", _QUICK]],
}


class Copy:
    """A copy of the repository's Python code and tests, whose files may be changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server: subprocess.Popen[str] | None = None
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        for name in ("python", "tests"):
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        shutil.copy(ROOT / "pyproject.toml", folder)
        for library in (ROOT / "python/headwater").glob("*.so"):
            (folder / "python/headwater" / library.name).symlink_to(library)
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(folder / "python"),
            # A file that changes twice within a second would be read from its old bytecode.
            "PYTHONDONTWRITEBYTECODE": "1",
            "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            # To compile takes most of the time.
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        }

    def passes(self, file: str, text: str, seconds: float) -> bool:
        """Returns whether the tests of a file pass with another text of it."""
        path = self._folder / "python" / file
        before = path.read_text()
        path.write_text(text)
        try:
            return all(self._pytest(tests, seconds) for tests in TESTS[file])
        finally:
            path.write_text(before)

    def _pytest(self, tests: list[str], seconds: float) -> bool:
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, "-W", "ignore", _SERVER],
                cwd=self._folder, env=self._environment, start_new_session=True, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.write(json.dumps({"tests": tests, "seconds": seconds}) + "\n")
        self._server.stdin.flush()
        return self._server.stdout.readline() == "0\n"

    def stop(self) -> None:
        """Ends the server, and with it the tests that run."""
        if self._server is not None:
            self._server.terminate()
            self._server.wait()


def chosen(file: str, share: int) -> list[Mutant]:
    """Returns each `share`-th mutant of a file, by a digest of its name."""
    found = mutants((ROOT / "python" / file).read_text())
    return [of for of in found if is_chosen(file, of.name, share)]


def _limit(copy: Copy, file: str) -> float:
    """Returns the seconds after which the tests of a changed file count as failed."""
    start = time.monotonic()
    if not copy.passes(file, (ROOT / "python" / file).read_text(), 1800):
        sys.exit(f"the tests of {file} fail without a change; mend them first")
    return 30 + 4 * (time.monotonic() - start)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", metavar="NAME", help="default: all files with tests")
    parser.add_argument("--share", type=int, default=1, help="take each Nth change (default: all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="default: all cores")
    arguments = parser.parse_args()
    for unknown in set(arguments.files) - set(TESTS):
        parser.error(f"expected files among {', '.join(TESTS)}; found {unknown}")
    files = arguments.files or list(TESTS)
    work: queue.Queue[tuple[str, Mutant]] = queue.Queue()
    for file in files:
        for mutant in chosen(file, arguments.share):
            work.put((file, mutant))
    check(RECORD, {(file, of.name) for file in files for of in chosen(file, 1)})
    count, reasons = work.qsize(), accepted(RECORD)
    survivors: list[tuple[str, Mutant]] = []
    print(f"{count} mutants of {len(files)} files", flush=True)

    def run(copy: Copy, limits: dict[str, float]) -> None:
        while True:
            try:
                file, mutant = work.get_nowait()
            except queue.Empty:
                return
            if copy.passes(file, mutant.text, limits[file]):
                survivors.append((file, mutant))
                known = reasons.get((file, mutant.name))
                shown = f"known ({known})" if known else "SURVIVED"
                print(f"{shown}: {file}:{mutant.line} {mutant.name}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        copies = [Copy(Path(folder) / str(number)) for number in range(arguments.jobs)]
        limits = {file: _limit(copies[0], file) for file in files}
        jobs = [threading.Thread(target=run, args=[copy, limits]) for copy in copies]
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        for job in jobs:
            job.start()
        try:
            for job in jobs:
                job.join()
        except KeyboardInterrupt:
            # Each job ends after its present mutant.
            work.queue.clear()
            print("stopping", flush=True)
            for copy in copies:
                copy.stop()
            for job in jobs:
                job.join()
            return 130
    new = [of for of in survivors if (of[0], of[1].name) not in reasons]
    return report(count, len(survivors), len(new))


if __name__ == "__main__":
    sys.exit(main())

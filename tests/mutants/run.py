"""Changes the Python code in small ways, one at a time, and lists the changes that no test notices.

    python tests/mutants/run.py [--share N] [--jobs N] [NAME ...]

NAME is a file such as `confluence/model.py`; default: all files that have tests below. `--share N`
takes each Nth change, always the same ones. Survivors that `survivors.md` names with a reason are
accepted; others end the command with status 1.

The tests run in copies of the repository, so the working tree is never changed.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import py_compile
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from importlib.util import find_spec
from pathlib import Path

from mutations import Mutant, mutants
from record import accepted, check, is_chosen, report

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests/python"))

import postgres  # noqa: E402

_SERVER = Path(__file__).parent / "server.py"
RECORD = Path(__file__).parent / "survivors.md"
_TWIN = ["tests/confluence/test_twin.py::test_the_model_equals_its_twin"]
_RECORDED = ["tests/confluence/test_optimizer.py", "-k", "recorded"]
_MODEL = "tests/confluence/test_model.py"
_RANKING = "tests/confluence/test_ranking.py"
_RESULTS = "tests/confluence/test_results.py"
_MASKED = "tests/confluence/test_masked.py"
_MICROBATCHES = "tests/confluence/test_microbatches.py"
_TREE_SUM = "tests/python/test_tree_sum.py"
_DRAFT = "tests/confluence/test_draft.py"
_SQL = "tests/python/test_sql.py"
_DUCKDB = "tests/python/test_duckdb_file.py"
_POSTGRES = "tests/python/test_postgres.py"
_TORCH_SUM = "tests/python/test_torch_sum.py"
_FOLDS = "tests/python/test_folds.py"
_PARTS = "tests/python/test_parts_and_sums.py"
_GRAM_JOB = "tests/python/test_gram_job.py"

# Without those that start other processes or wait.
_QUICK = "not ctrl_c and not fork and not memory and not thread and not killed and not command"

# Without those that start a pool of processes or draw many cases, and one that reads a file.
_FEW_DRAWS = (
    "not processes and not any_split and not pieces_and_order and not in_any_order and not golden"
)
# Hypothesis takes long to shrink what it finds, so its tests come last.
_BY_EXAMPLES = (
    "(ordered_pairs or over_thresholds or over_categories or its_place or plain_count "
    "or draws_entities or had)"
)

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
        [_MODEL, "-k", "rate_rises or rate_falls or muon_updates"],
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
    "confluence/checkpoint.py": [["tests/confluence/test_checkpoint.py"]],
    "confluence/config.py": [
        ["tests/confluence/test_config.py", "-k", "not ignored and not other_walk"],
        ["tests/confluence/test_config.py", "-k", "other_walk"],
    ],
    "confluence/assembly.py": [
        ["tests/confluence/test_assembly.py", "-k", "not suit and not refused"],
        ["tests/confluence/test_assembly.py", "-k", "suit or refused"],
    ],
    "confluence/bench.py": [["tests/confluence/test_bench.py"]],
    "confluence/draft.py": [
        [_DRAFT, "-k", "not steps and not drawn"],
        [_DRAFT, "-k", "steps or drawn"],
        ["tests/confluence/test_init.py", "-k", "run_in_place"],
    ],
    "confluence/drawing.py": [[_DRAFT, "-k", "drawn"]],
    "confluence/widths.py": [["tests/confluence/test_widths.py"]],
    "confluence/synthetic.py": [["tests/confluence/test_synthetic.py"]],
    "confluence/patience.py": [["tests/confluence/test_patience.py", "-k", "over_after"]],
    "confluence/metrics.py": [
        ["tests/confluence/test_metrics.py", "-k", f"not {_BY_EXAMPLES}"],
        ["tests/confluence/test_metrics.py", "-k", _BY_EXAMPLES],
    ],
    "confluence/rollcall.py": [
        [
            "tests/confluence/test_rollcall.py",
            "-k",
            "not before_writing and not bounded and not stops_on",
        ]
    ],
    "confluence/calibration.py": [["tests/confluence/test_calibration.py", "-k", "not of_a_run"]],
    "confluence/intervals.py": [
        [
            "tests/confluence/test_intervals.py",
            "-k",
            "leave_out or holds_its or too_few or grows or at_an_end or probabilities or width "
            "or of_its_results or own_bin",
        ]
    ],
    "confluence/baselines.py": [
        [
            "tests/confluence/test_baselines.py",
            "-k",
            "last_year or of_a_task or strict or splits or without_labels or beside or scikit "
            "or pairs or seconds",
        ],
        ["tests/confluence/test_baselines.py", "-k", "p7"],
    ],
    "confluence/masked.py": [
        [_MASKED, "-k", "named_with or only_masked or to_mask or advice or score"]
    ],
    "confluence/prediction.py": [["tests/confluence/test_prediction.py"]],
    "confluence/evaluation.py": [
        ["tests/confluence/test_evaluation.py"],
        ["tests/confluence/test_metrics.py", "-k", "known_category"],
    ],
    "confluence/scoring.py": [["tests/confluence/test_scoring.py"]],
    "confluence/seeds.py": [["tests/confluence/test_seeds.py"]],
    "confluence/contexts.py": [["tests/confluence/test_contexts.py"]],
    "confluence/boosting.py": [["tests/confluence/test_boosting.py"]],
    "confluence/frames.py": [["tests/confluence/test_frames.py"]],
    "confluence/answers.py": [
        [
            "tests/confluence/test_answers.py",
            "-k",
            "answers_are or each_seed or the_columns or period or pyarrow or refused or no_year",
        ]
    ],
    "confluence/results.py": [
        [_RESULTS, "-k", "not stands_beside and not without_scikit and not run_ends"]
    ],
    "confluence/tables.py": [[_RESULTS, "-k", "goes_on or has_a_width or of_a_page or table_has"]],
    "confluence/times.py": [["tests/confluence/test_times.py"]],
    "confluence/time_range.py": [["tests/confluence/test_times.py"]],
    "confluence/anchors.py": [[_RANKING]],
    "confluence/ranking.py": [[_RANKING]],
    "confluence/hiding.py": [
        [
            "tests/confluence/test_hiding.py",
            "-k",
            "hidden_if or plain_search or own_cells or what_no_context or greatest_loss or table "
            "or summary or padding",
        ],
    ],
    "confluence/links.py": [
        [
            "tests/confluence/test_links.py",
            "-k",
            "hand or is_chance or interval or linked or group",
        ],
        ["tests/confluence/test_links.py", "-k", "over_all_orders"],
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
    "headwater/_tree.py": [[_TREE_SUM, "-k", "shares_follow or nodes_are or leaves_of_a"]],
    "headwater/torch.py": [
        [_TORCH_SUM, "-k", "forked or form or may_change or not_fit"],
        ["tests/python/test_torch.py"],
    ],
    "headwater/_sql.py": [
        [_SQL, "-k", "engine or without_duckdb or targets_are or wrong_query or parquet"],
        [_SQL, "tests/python/test_sql_values.py", "-k", "not command and not long_query"],
    ],
    "headwater/_sql_calls.py": [["tests/python/test_sql_calls.py"]],
    "headwater/_streams.py": [
        [
            "tests/python/test_sampler.py",
            "-k",
            "after_shutdown or unpickled or foreign or replaces_no_file",
        ],
        ["tests/python/test_sampler.py", "-k", _QUICK],
    ],
    "headwater/_database.py": [[_DUCKDB, "-k", "not command"]],
    "headwater/_duckdb_file.py": [[_DUCKDB, "-k", "not command"]],
    "headwater/_postgres.py": [
        [_POSTGRES, "-k", "address_is or address_with or a_message or driver"],
        [_POSTGRES, "-k", "not command and not never_shown"],
    ],
    "headwater/maxtext.py": [["tests/confluence/test_maxtext_adaptor.py"]],
    "headwater/page.py": [["tests/python/test_tables.py", "-k", "drawn"]],
    "headwater/_html.py": [["tests/python/test_tables.py", "-k", "escaped"]],
    "headwater/_cli.py": [["tests/python/test_cli.py", "-k", "interrupt"]],
    "headwater/_alias.py": [["tests/confluence/test_adaptors.py", "-k", "test_jax"]],
    "headwater/masks.py": [["tests/python/test_masks.py", "-k", "attention"]],
    "headwater/orbax.py": [["tests/confluence/test_adaptors.py", "-k", "orbax"]],
    "headwater/tables.py": [["tests/python/test_tables.py", "-k", _QUICK]],
    "headwater/_frames.py": [
        ["tests/python/test_sources.py", "tests/python/test_events.py", "-k", "column or in_memory"]
    ],
    "headwater/reduce.py": [
        [_FOLDS, _PARTS, "-k", f"{_QUICK} and {_FEW_DRAWS}"],
        [_FOLDS, "-k", "of_the_command and float64"],
    ],
    "headwater/_reduce_jobs.py": [
        [_FOLDS, _PARTS, "-k", f"{_QUICK} and {_FEW_DRAWS}"],
        [_GRAM_JOB, "-k", _QUICK],
        [_FOLDS, _GRAM_JOB, "-k", "of_the_command and (float64 or fields or chunks)"],
    ],
    "headwater/_reduce_workers.py": [
        [_FOLDS, _PARTS, _GRAM_JOB, "-k", f"{_QUICK} and {_FEW_DRAWS}"]
    ],
}

# What a file needs that may be missing here, and whether it is there. PyTorch has an environment of
# its own; run this by its Python.
NEEDED = {
    "headwater/torch.py": ("PyTorch", find_spec("torch") is not None),
    "headwater/_postgres.py": ("a Postgres server", postgres.programs() is not None),
}


class Copy:
    """A copy of the repository's Python code and tests, whose files may be changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server: subprocess.Popen[str] | None = None
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        for name in ("python", "tests"):
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
            compileall.compile_dir(folder / name, quiet=2)
        shutil.copy(ROOT / "pyproject.toml", folder)
        for library in (ROOT / "python/headwater").glob("*.so"):
            (folder / "python/headwater" / library.name).symlink_to(library)
        # Those of files that change are known by the digest of their text.
        by_digest = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(folder, quiet=2, invalidation_mode=by_digest)
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
    return 20 + 5 * (time.monotonic() - start)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", metavar="NAME", help="default: all files with tests")
    parser.add_argument("--share", type=int, default=1, help="take each Nth change (default: all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="default: all cores")
    arguments = parser.parse_args()
    for unknown in set(arguments.files) - set(TESTS):
        parser.error(f"expected files among {', '.join(TESTS)}; found {unknown}")
    lacking = {file: what for file, (what, is_there) in NEEDED.items() if not is_there}
    for file in lacking.keys() & set(arguments.files):
        parser.error(f"expected {lacking[file]}, which the tests of {file} need, found none")
    files = arguments.files or [file for file in TESTS if file not in lacking]
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

"""The commands evaluate, predict, bench and help, and the same functions from Python."""

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import headwater
from confluence import baselines, config, evaluation
from runs import confluence, confluence_here, results, run, sets


def test_evaluate_finds_the_results_of_the_run(whole):
    shown = confluence_here("evaluate", whole, "--split", "test", "--split", "val")
    assert shown.returncode == 0, shown.stderr
    found = results(whole)["tasks"]
    for task, of_task in found.items():
        for split in ("val", "test"):
            name, baseline = next(iter(of_task[split]["baselines"].items()))
            assert of_task["leading"] in baseline
            for metric, value in baseline.items():
                interval = r"(?:-?[0-9.]+ to -?[0-9.]+ +)?"
                line = rf"{task} +{metric} +{split} +(\S+) +{interval}{name} (-?[0-9.]+)"
                assert re.search(line, shown.stdout).groups() == (
                    f"{of_task[split][metric]:.4f}", f"{value:.4f}",
                )  # fmt: skip


def test_an_evaluation_knows_nothing_later_than_visible_until(whole):
    def shown(*more):
        found = confluence_here("evaluate", whole, *more)
        assert found.returncode == 0, found.stderr
        return found.stdout

    assert shown("--visible-until", "2100-01-01") == shown()
    assert shown("--visible-until", "2020-06-01") != shown()
    refused = confluence_here("evaluate", whole, "--visible-until", "tomorrow")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "tomorrow" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_moved_run_with_a_moved_store_is_evaluated_unchanged(whole, demo_store, tmp_path):
    moved, run_folder = tmp_path / "moved", tmp_path / "run"
    shutil.copytree(demo_store, moved)
    shutil.copytree(whole, run_folder)
    config_file = run_folder / "config.toml"
    config_file.write_text(config_file.read_text().replace(str(demo_store), "/nowhere"))
    # As a running process leaves it.
    (run_folder / "checkpoints/99.orbax-checkpoint-tmp").mkdir()
    before = sorted(run_folder.rglob("*"))
    shown = confluence_here("evaluate", run_folder, "--split", "train", "--store", moved)
    assert shown.returncode == 0, shown.stderr
    assert sorted(run_folder.rglob("*")) == before
    # On the train split, no baseline uses a row's own labels.
    assert "mean 0." in shown.stdout
    assert "of the entity" not in shown.stdout
    assert "/nowhere" in confluence_here("evaluate", run_folder).stderr


def predicted(run_folder, task, seeds, folder):
    """Returns the lines of predictions for these keys and times."""
    path = folder / "seeds.csv"
    path.write_text("key,at\n" + "".join(f"{key},{at}\n" for key, at in seeds))
    shown = confluence_here("predict", run_folder, "--task", task, "--seeds", path)
    assert shown.returncode == 0, shown.stderr
    return list(csv.DictReader(io.StringIO(shown.stdout)))


def test_predictions_of_chosen_rows_match_the_evaluation(whole, demo_store, tmp_path):
    with (demo_store.parent / "data/task_spend.csv").open() as file:
        test_seeds = [line for line in csv.DictReader(file) if line["split"] == "test"]
    seeds = [(line["customer_id"], line["obs_time"]) for line in test_seeds]
    lines = predicted(whole, "spend", seeds, tmp_path)
    assert [(line["key"], line["obs_time"]) for line in lines] == seeds
    values = np.array([float(line["prediction"]) for line in lines])
    labels = np.array([float(line["spent"]) for line in test_seeds])
    scores = results(whole)["tasks"]["demo-shop/spend"]["test"]
    # The contexts differ: which children they have is drawn for each seed.
    assert np.abs(values - labels).mean() == pytest.approx(scores["mae"], rel=0.05)
    assert all(0 <= float(line["null_probability"]) <= 1 for line in lines)
    # Each prediction belongs to its own seed, in any order.
    backwards = predicted(whole, "spend", seeds[::-1], tmp_path)[::-1]
    again = np.array([float(line["prediction"]) for line in backwards])
    assert np.corrcoef(values, again)[0, 1] > 0.5


def test_categories_are_predicted_by_name_without_a_time(whole, demo_store, tmp_path):
    with (demo_store.parent / "data/products.csv").open() as file:
        products = list(csv.DictReader(file))[:11]
    lines = predicted(whole, "products.material", [(p["id"], "") for p in products], tmp_path)
    assert [line["key"] for line in lines] == [p["id"] for p in products]
    assert {line["prediction"] for line in lines} <= {"paper", "plastic", "cotton", "oak", "steel"}


@pytest.mark.parametrize(
    ("task", "seeds", "message"),
    [
        ("chrn", "key,at\n1,2022-01-01\n", "no task is called 'chrn'; did you mean 'churn'?"),
        ("demo-shop/spent", "key,at\n1,2022-01-01\n", "did you mean 'demo-shop/spend'?"),
        ("zzz", "key,at\n1,2022-01-01\n", "name one of demo-shop/churn, demo-shop/spend, demo"),
        (
            "churn",
            "key,at\nnobody,2022-01-01\n",
            'no seed has a prediction: 1 of 1 keys are in no row of table "customers": "nobody" '
            '(line 2); a key looks like "1"',
        ),
        ("churn", "key,at\n", "expected at least one seed after the header, found none"),
        ("churn", "key,at\n1\n", "line 2: expected 2 fields like the header, found 1"),
        (
            "churn",
            "",
            "expected a header such as key,obs_time and one line per seed, found an empty file",
        ),
        ("churn", "1,2022-01-01\n2,2022-01-01\n", "line 1: expected a header such as key,obs_time"),
        ("churn", "key;at\n1;2022-01-01\n", "line 1: expected a header of at least two columns"),
        ("churn", "key,at\n1,yesterday\n", "line 2: expected a time such as 2024-05-31 12:00:00"),
        (
            "churn",
            "key,at\n1,2022-01-01\n1,\n",
            "seed 2 (line 3 of a seeds file): expected an observation time",
        ),
    ],
)
def test_invalid_seeds_give_one_line_and_no_traceback(task, seeds, message, whole, tmp_path):
    path = tmp_path / "seeds.csv"
    path.write_text(seeds)
    shown = confluence_here("predict", whole, "--task", task, "--seeds", path)
    assert shown.returncode == 1
    assert shown.stdout == ""
    assert message in shown.stderr
    assert "Traceback" not in shown.stderr


def test_a_task_without_train_seeds_has_no_baselines(demo_store, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(demo_store.parent / "data", data)
    header, *lines = (data / "task_churn.csv").read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.rstrip().endswith("train")]
    assert 0 < len(kept) < len(lines)
    (data / "task_churn.csv").write_text(header + "".join(kept))
    headwater.prepare(data, data / "schema.toml", tmp_path / "store", dimension=32)
    stores = [headwater.Store(tmp_path / "store")]
    settings = config.load(None, [f"data.stores={tmp_path / 'store'}", "data.tasks=churn"])
    (task,) = evaluation.find_tasks(["demo-shop/churn"], stores)
    with pytest.warns(UserWarning, match="has no seed in the train split"):
        found = baselines.of_task(settings, stores, task, ["test"], with_boosting=True)
    assert found == ({"test": {}}, {}, "no labels in train")
    with (
        pytest.warns(UserWarning, match="has no seed in the train split"),
        pytest.raises(config.ConfigError, match="each split .* found no labels in train"),
    ):
        baselines.compare(settings, stores, task)


@pytest.mark.parametrize("part", [[], ["--no-train"], ["--synthetic-data"]])
def test_bench_measures_the_chosen_parts(part, tiny):
    settings = tiny[1:] if part == ["--synthetic-data"] else tiny
    shown = confluence_here("bench", *sets(settings), "--steps", 4, *part)
    assert shown.returncode == 0, shown.stderr
    found = json.loads(shown.stdout)
    assert found["steps"] == 4
    assert found["step_seconds"] > 0
    assert found["first_seconds"] > 0
    assert found["cells_per_second"] > 0
    assert ("data_wait" in found) == (part != ["--synthetic-data"])


def test_bench_refuses_invalid_options(tiny):
    for settings, message in (
        (["--steps", 0], "expected at least 1 for --steps, found 0"),
        (
            ["--synthetic-data", *sets(["data.sequence_length=8"])],
            "expected data.sequence_length of at least 13",
        ),
    ):
        shown = confluence_here("bench", *sets(tiny), *settings)
        assert shown.returncode == 1
        assert message in shown.stderr
        assert "Traceback" not in shown.stderr


def test_a_process_uses_one_of_several_devices_and_reports_it(tiny):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    shown = confluence("bench", *sets(tiny), "--steps", 2, XLA_FLAGS=flags.strip())
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["devices"] == 1
    assert "using 1 of 2 devices, one per process" in shown.stderr


def test_a_profile_traces_the_given_steps(tiny, tmp_path):
    settings = [*tiny, "data.tasks=['churn']", "optimizer.steps=6", "run.evaluate_every=6"]
    finished = run(settings, tmp_path / "run", "--profile", "3:4")
    assert finished.returncode == 0, finished.stderr
    assert list((tmp_path / "run/profile").rglob("*.xplane.pb"))
    finished = run(settings, tmp_path / "beyond", "--profile", "30:32")
    assert finished.returncode == 0, finished.stderr
    assert not (tmp_path / "beyond/profile").exists()
    refused = run(settings, tmp_path / "other", "--profile", "4")
    assert refused.returncode == 1
    assert "expected two steps such as 100:110 for --profile, found '4'" in refused.stderr


def test_an_option_that_a_verb_lacks_names_the_nearest(whole):
    shown = confluence_here("evaluate", whole, "--relation")
    assert (shown.returncode, shown.stdout) == (2, "")
    assert "usage: confluence evaluate" in shown.stderr
    assert (
        "error: unrecognized arguments: --relation; did you mean --relations for --relation?"
    ) in shown.stderr
    assert "unrecognized arguments: --zzz\n" in confluence_here("evaluate", whole, "--zzz").stderr


def test_a_wrong_task_names_the_nearest(whole, tiny):
    for arguments in (
        ["inspect", whole, "--task", "chrun", "--seed-index", 3],
        ["train", *sets([*tiny, "data.tasks=chrun"]), "--out", "never"],
        ["baselines", tiny[0].partition("=")[2], "--task", "chrun"],
    ):
        shown = confluence_here(*arguments)
        assert (shown.returncode, shown.stdout) == (1, "")
        assert "no task is called 'chrun'; did you mean 'churn'?" in shown.stderr
        assert "Traceback" not in shown.stderr


def test_the_version_is_that_of_headwater():
    headwater_command = Path(sys.executable).parent / "headwater"
    found = subprocess.run([headwater_command, "--version"], capture_output=True, text=True).stdout
    for option in ("-V", "--version"):
        shown = confluence_here(option)
        assert (shown.returncode, shown.stderr) == (0, "")
        assert shown.stdout == found.replace("headwater", "confluence", 1)
        assert f"confluence {headwater.__version__} (" in shown.stdout


@pytest.mark.parametrize(("verb", "hint"), [("tran", "; did you mean train?"), ("xyz", "")])
def test_an_unknown_verb_is_refused_with_the_nearest(verb, hint):
    shown = confluence_here(verb, "my.db", "--task", "churn")
    assert (shown.returncode, shown.stdout) == (2, "")
    verbs = "init, presets, train, evaluate, predict, inspect, baselines, bench, smoke"
    last = shown.stderr.splitlines()[-1]
    assert last == f"confluence: error: expected a VERB, one of {verbs}, found {verb!r}{hint}"


def test_the_help_has_the_text_of_each_verb_beside_its_name():
    shown = confluence_here("--help").stdout.partition("  VERB\n")[2].partition("\n\n")[0]
    lines = [line for line in shown.splitlines() if not line.startswith(" " * 5)]
    assert len(lines) == 9
    assert {len(re.match(" {4}[a-z]+ +", line)[0]) for line in lines} == {17}
    assert all(re.match(" {4}[a-z]+ {2,}[a-z]", line) for line in lines)


def test_help_shows_an_example():
    shown = confluence("--help")
    assert shown.returncode == 0
    assert "confluence train --config cpu-small" in shown.stdout


def test_the_f1db_example_trains_on_its_data(tmp_path):
    root = Path(__file__).parents[2]
    data = Path(os.environ.get("HEADWATER_SHARED", root.parent / "shared")) / "data/f1db"
    if not data.exists():
        pytest.skip(f"F1DB is not at {data}")
    example = root / "examples/f1db"
    headwater.prepare(data, example / "schema.toml", tmp_path / "store", dimension=32)
    settings = [
        f"data.stores={tmp_path / 'store'}", "optimizer.steps=3", "run.evaluate_batches=2",
        "run.threads=1", "data.tasks=['driver-top3']",
    ]  # fmt: skip
    finished = run(settings, tmp_path / "run", "--config", example / "train.toml")
    assert finished.returncode == 0, finished.stderr
    found = results(tmp_path / "run")["tasks"]["f1db/driver-top3"]
    assert (found["val"]["seeds"], found["test"]["seeds"]) == (854, 3191)

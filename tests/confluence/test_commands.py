"""What is done with a run, or without one: evaluate, predict, bench, profile, help."""

import csv
import io
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import headwater
from confluence import config, evaluate
from runs import confluence, results, run, sets


def test_an_evaluation_afterwards_finds_what_the_run_found(whole):
    shown = confluence("evaluate", whole, "--split", "test", "--split", "val")
    assert shown.returncode == 0, shown.stderr
    found = results(whole)["tasks"]
    for task, told in found.items():
        for split in ("val", "test"):
            name, baseline = next(iter(told[split]["baselines"].items()))
            assert told["leading"] in baseline
            for metric, value in baseline.items():
                line = rf"{task} +{metric} +{split} +(\S+) +{name} (-?[0-9.]+)"
                assert re.search(line, shown.stdout).groups() == (
                    f"{told[split][metric]:.4f}", f"{value:.4f}",
                )  # fmt: skip


def test_a_run_and_its_store_may_be_elsewhere_and_are_left_as_they_are(whole, demo_store, tmp_path):
    moved, run_folder = tmp_path / "moved", tmp_path / "run"
    shutil.copytree(demo_store, moved)
    shutil.copytree(whole, run_folder)
    config_file = run_folder / "config.toml"
    config_file.write_text(config_file.read_text().replace(str(demo_store), "/nowhere"))
    # As a run that is still going on leaves it.
    (run_folder / "checkpoints/99.orbax-checkpoint-tmp").mkdir()
    before = sorted(run_folder.rglob("*"))
    shown = confluence("evaluate", run_folder, "--split", "train", "--store", moved)
    assert shown.returncode == 0, shown.stderr
    assert sorted(run_folder.rglob("*")) == before
    # Of its own labels nobody is told.
    assert "mean 0." in shown.stdout
    assert "of the entity" not in shown.stdout
    assert "/nowhere" in confluence("evaluate", run_folder).stderr


def predicted(run_folder, task, seeds, folder):
    """The lines of predictions for these keys and times."""
    path = folder / "seeds.csv"
    path.write_text("key,at\n" + "".join(f"{key},{at}\n" for key, at in seeds))
    shown = confluence("predict", run_folder, "--task", task, "--seeds", path)
    assert shown.returncode == 0, shown.stderr
    return list(csv.DictReader(io.StringIO(shown.stdout)))


def test_predictions_for_chosen_rows_are_those_of_the_evaluation(whole, demo_store, tmp_path):
    with (demo_store.parent / "data/task_spend.csv").open() as file:
        asked = [line for line in csv.DictReader(file) if line["split"] == "test"]
    seeds = [(line["customer_id"], line["obs_time"]) for line in asked]
    lines = predicted(whole, "spend", seeds, tmp_path)
    assert [(line["key"], line["obs_time"]) for line in lines] == seeds
    values = np.array([float(line["prediction"]) for line in lines])
    labels = np.array([float(line["spent"]) for line in asked])
    told = results(whole)["tasks"]["demo-shop/spend"]["test"]
    # Not the same contexts: which children are in them is drawn for each seed.
    assert np.abs(values - labels).mean() == pytest.approx(told["mae"], rel=0.05)
    assert all(0 <= float(line["null_probability"]) <= 1 for line in lines)
    # Each is of its own seed, wherever that stands.
    backwards = predicted(whole, "spend", seeds[::-1], tmp_path)[::-1]
    again = np.array([float(line["prediction"]) for line in backwards])
    assert np.corrcoef(values, again)[0, 1] > 0.5


def test_categories_are_predicted_by_name_and_without_a_time(whole, demo_store, tmp_path):
    with (demo_store.parent / "data/products.csv").open() as file:
        products = list(csv.DictReader(file))[:11]
    lines = predicted(whole, "products.material", [(p["id"], "") for p in products], tmp_path)
    assert [line["key"] for line in lines] == [p["id"] for p in products]
    assert {line["prediction"] for line in lines} <= {"paper", "plastic", "cotton", "oak", "steel"}


@pytest.mark.parametrize(
    ("task", "seeds", "words"),
    [
        ("chrn", "key,at\n", "expected one of the tasks demo-shop/churn, demo-shop/spend"),
        ("churn", "key,at\nnobody,2022-01-01\n", "nobody"),
        ("churn", "key,at\n1\n", "line 2: expected 2 fields, as the header has, found 1"),
        ("churn", "", "is empty; expected a header, and a line for each seed"),
        ("churn", "1,2022-01-01\n2,2022-01-01\n", "line 1: expected a header such as key,obs_time"),
        ("churn", "key;at\n1;2022-01-01\n", "line 1: expected a header of two columns or more"),
        ("churn", "key,at\n1,yesterday\n", "line 2: expected a time such as 2024-05-31 12:00:00"),
        ("churn", "key,at\n1,2022-01-01\n1,\n", "line 3: expected an observation time"),
    ],
)
def test_what_cannot_be_predicted_is_one_line_and_no_traceback(task, seeds, words, whole, tmp_path):
    path = tmp_path / "seeds.csv"
    path.write_text(seeds)
    shown = confluence("predict", whole, "--task", task, "--seeds", path)
    assert shown.returncode == 1
    assert shown.stdout == ""
    assert words in shown.stderr
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
    (task,) = evaluate.tasks_of(["demo-shop/churn"], stores)
    with pytest.warns(UserWarning, match="has no seed in the train split"):
        known = evaluate.train_labels(settings, stores, task)
    assert (len(known.rows), len(known.labels)) == (0, 0)
    scored = evaluate.Scored(0.5, 1, 0, {}, *(np.array([value]) for value in (3, 0.2, 1.0)))
    assert evaluate.baselines(known, "test", task, scored) == {}


@pytest.mark.parametrize("apart", [[], ["--no-train"], ["--synthetic-data"]])
def test_bench_measures_what_it_is_asked_for(apart, tiny):
    settings = tiny[1:] if apart == ["--synthetic-data"] else tiny
    shown = confluence("bench", *sets(settings), "--steps", 4, *apart)
    assert shown.returncode == 0, shown.stderr
    told = json.loads(shown.stdout)
    assert told["steps"] == 4
    assert 0 < told["step_seconds"] < told["first_seconds"]
    assert told["cells_per_second"] > 0
    assert ("data_wait" in told) == (apart != ["--synthetic-data"])


def test_bench_says_what_it_cannot_measure(tiny):
    for settings, words in (
        (["--steps", 0], "expected at least 1 as --steps, found 0"),
        (["--synthetic-data", *sets(["data.cells=8"])], "want data.cells of at least 13"),
    ):
        shown = confluence("bench", *sets(tiny), *settings)
        assert shown.returncode == 1
        assert words in shown.stderr
        assert "Traceback" not in shown.stderr


def test_of_several_devices_a_process_uses_one_and_says_so(tiny):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    shown = confluence("bench", *sets(tiny), "--steps", 2, XLA_FLAGS=flags.strip())
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["devices"] == 1
    assert "of 2 devices 1 are used, one of each process" in shown.stderr


def test_a_profile_is_of_the_steps_that_are_named(tiny, tmp_path):
    settings = [*tiny, "optimizer.steps=6", "optimizer.warmup_steps=2", "data.tasks=['churn']"]
    ended = run(settings, tmp_path / "run", "--profile", "3:4")
    assert ended.returncode == 0, ended.stderr
    assert list((tmp_path / "run/profile").rglob("*.xplane.pb"))
    ended = run(settings, tmp_path / "beyond", "--profile", "10:12")
    assert ended.returncode == 0, ended.stderr
    assert not (tmp_path / "beyond/profile").exists()
    refused = run(settings, tmp_path / "other", "--profile", "4")
    assert refused.returncode == 1
    assert "expected two steps such as 100:110 as --profile, found '4'" in refused.stderr


def test_help_teaches():
    shown = confluence("--help")
    assert shown.returncode == 0
    assert "confluence train --config cpu-small" in shown.stdout


def test_the_example_on_f1db_fits_its_data(tmp_path):
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
    ended = run(settings, tmp_path / "run", "--config", example / "train.toml")
    assert ended.returncode == 0, ended.stderr
    found = results(tmp_path / "run")["tasks"]["f1db/driver-top3"]
    assert (found["val"]["seeds"], found["test"]["seeds"]) == (854, 3191)

"""Predictions of many rows: unknown keys, all rows at one time, the highest."""

import csv
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import confluence
import confluence.anchors
import confluence.assembly
import confluence.evaluation
import headwater
from confluence import ranking
from runs import confluence_here as command
from stores import prepare_tables

# Orbax's threads warn of options that are intended; the command silences them.
pytestmark = pytest.mark.filterwarnings("ignore")


def lines_of(shown):
    assert shown.returncode == 0, shown.stderr
    return list(csv.DictReader(io.StringIO(shown.stdout)))


def seeds_file(folder, seeds):
    path = folder / "seeds.csv"
    path.write_text("key,at\n" + "".join(f"{key},{at}\n" for key, at in seeds))
    return path


def test_unknown_keys_are_listed_and_the_rest_is_predicted(whole, tmp_path):
    # 12 unknown keys between known ones: more than are listed.
    keys = [f"x{key}" if key % 2 else str(key) for key in range(1, 25)]
    path = seeds_file(tmp_path, [(key, "2022-01-01") for key in keys])
    shown = command("predict", whole, "--task", "churn", "--seeds", path)
    known = [key for key in keys if not key.startswith("x")]
    assert [line["key"] for line in lines_of(shown)] == known
    assert '12 of 24 keys are in no row of table "customers": "x1" (line 2)' in shown.stderr
    assert '"x19" (line 20), and 2 more; a key looks like "1"' in shown.stderr
    assert '"x21"' not in shown.stderr
    path = seeds_file(tmp_path, [(key, "2022-01-01") for key in known])
    alone = command("predict", whole, "--task", "churn", "--seeds", path)
    assert (alone.stdout, alone.stderr) == (shown.stdout, "")


def test_rows_that_do_not_exist_yet_are_listed_and_the_rest_is_predicted(
    whole, demo_store, tmp_path
):
    with (demo_store.parent / "data/customers.csv").open() as file:
        since = {line["id"]: line["signed_up"] for line in csv.DictReader(file)}
    at = "2020-09-01"
    early = [key for key in since if since[key] <= at][:3]
    late = [key for key in since if since[key] > at][:12]
    path = seeds_file(tmp_path, [(key, at) for key in [*late, "nobody", *early]])
    shown = command("predict", whole, "--task", "churn", "--seeds", path)
    assert [line["key"] for line in lines_of(shown)] == early
    assert '1 of 16 keys are in no row of table "customers": "nobody" (line 14)' in shown.stderr
    assert (
        '12 of 16 observation times are before their row of table "customers": '
        f'"{late[0]}" did not exist at {at}; first seen at {since[late[0]]} 00:00:00 (line 2), '
    ) in shown.stderr
    assert f'"{late[9]}" did not exist' in shown.stderr
    assert ", and 2 more; choose later times; they have no prediction" in shown.stderr
    # At its own time a row exists.
    path = seeds_file(tmp_path, [(late[0], since[late[0]])])
    assert len(lines_of(command("predict", whole, "--task", "churn", "--seeds", path))) == 1
    path = seeds_file(tmp_path, [(key, at) for key in late])
    shown = command("predict", whole, "--task", "churn", "--seeds", path)
    assert (shown.returncode, shown.stdout) == (1, "")
    assert "no seed has a prediction: 12 of 12 observation times are before their" in shown.stderr
    with pytest.raises(confluence.config.ConfigError, match="1 of 2 observation times .*seed 2"):
        confluence.predict(whole, "churn", [(early[0], at), (late[0], at)])


@pytest.fixture(scope="module")
def repeated(tiny, tmp_path_factory):
    """A run on a store in which a key is in two rows, of which the second is the earlier one."""
    folder = tmp_path_factory.mktemp("repeated")
    schema = """
database = "club"
limits = { duplicate_keys = 2 }

[[table]]
name = "members"
key = "id"
time = { column = "since" }
columns = { id = "ignored", since = "timestamp", age = "numerical" }

[[task]]
name = "pays"
[task.derived]
anchor = "members"
source = "pays"
key = "id"
time = "at"
target = "pays"
type = "boolean"
split = "split"
"""
    ages = [n % 50 for n in range(60)]
    members = [(n, f"2020-01-{1 + n % 28:02}", ages[n]) for n in range(60)]
    members[7] = (7, "2021-06-01", 33)
    # Row 60 is older than row 7, whose key it has; row 61 is later than row 8.
    members += [(7, "2020-01-01", 11), (8, "2020-02-01", 12)]
    splits = ["train", "train", "val", "test"]
    pays = [(n, "2022-01-01", n % 2 == 0, splits[n % 4]) for n in range(60)]
    tables = {
        "members": (("id", "since", "age"), members),
        "pays": (("id", "at", "pays", "split"), pays),
    }
    store = prepare_tables(folder, schema, tables, dimension=32)
    settings = [
        *(of for of in tiny if not of.startswith(("data.stores", "data.tasks"))),
        f"data.stores={store}", "data.tasks=pays", "optimizer.steps=2", "run.evaluate_every=1",
        "optimizer.warmup_steps=1",
    ]  # fmt: skip
    confluence.train(confluence.load(None, settings), folder / "run")
    return folder / "run"


def test_a_row_whose_key_names_an_earlier_row_has_no_prediction(repeated):
    shown = command("predict", repeated, "--task", "pays", "--at", "2021-01-01")
    keys = [line["key"] for line in lines_of(shown)]
    # Row 7 does not exist yet, and key 7 would answer for it.
    assert sorted(map(int, keys)) == [n for n in range(60) if n != 7]
    assert (
        '2 rows of table "members" have the key of an earlier row and have no prediction, since a '
        'key names the first row that has it: "7" (row 60), "8" (row 61); give each row a key'
    ) in shown.stderr


def test_all_rows_visible_at_a_time_are_predicted_the_highest_first(whole, demo_store, tmp_path):
    at = "2020-09-01"
    with (demo_store.parent / "data/customers.csv").open() as file:
        visible = [line["id"] for line in csv.DictReader(file) if line["signed_up"] <= at]
    assert 0 < len(visible) < 1200
    shown = command("predict", whole, "--task", "churn", "--at", at)
    lines = lines_of(shown)
    assert sorted(line["key"] for line in lines) == sorted(visible)
    assert {line["obs_time"] for line in lines} == {at}
    values = [float(line["prediction"]) for line in lines]
    assert values == sorted(values, reverse=True)
    # The same predictions as for a list of keys.
    path = seeds_file(tmp_path, [(key, at) for key in visible])
    listed = {line["key"]: line for line in lines_of(
        command("predict", whole, "--task", "churn", "--seeds", path)
    )}  # fmt: skip
    for line in lines:
        own = listed[line["key"]]
        assert float(line["prediction"]) == pytest.approx(float(own["prediction"]), abs=2e-6)
    out = tmp_path / "top.csv"
    top = command("predict", whole, "--task", "churn", "--at", at, "--top", 7, "--out", out)
    assert (top.returncode, top.stdout, top.stderr) == (0, "", "")
    assert out.read_text().splitlines() == shown.stdout.splitlines()[:8]


def test_categories_at_a_time_are_in_the_order_of_the_rows(whole, demo_store):
    shown = command("predict", whole, "--task", "products.material", "--at", "2022-01-01")
    store = headwater.Store(demo_store)
    # Products have no time of their own: all of them are visible.
    wanted = [store.row("products", index=row)["key"] for row in range(600)]
    assert [line["key"] for line in lines_of(shown)] == wanted


def test_a_row_is_visible_from_its_own_time_on(demo_store):
    store = headwater.Store(demo_store)
    (task,) = confluence.evaluation.find_tasks(["demo-shop/churn"], [store])
    anchor = confluence.anchors.of_task(store, task)
    since = store.row("customers", index=5)["time"].astype(np.int64)
    assert 5 in dict(anchor.visible_rows(int(since)))
    assert 5 not in dict(anchor.visible_rows(int(since) - 1))


def test_the_highest_are_kept_and_ties_are_in_the_order_of_the_rows():
    parts = [
        ranking.Ranked(
            np.array([0, 1, 2]), np.array([0.5, np.nan, 0.9]), np.array([0.0, 0.1, 0.2])
        ),
        ranking.Ranked(np.array([3, 4]), np.array([0.9, 0.5]), np.array([0.3, 0.4])),
    ]
    assert ranking.highest(parts, None).rows.tolist() == [2, 3, 0, 4, 1]
    top = ranking.highest(parts, 3)
    assert (top.rows.tolist(), top.values.tolist()) == ([2, 3, 0], [0.9, 0.9, 0.5])
    assert top.nulls.tolist() == [0.2, 0.3, 0.0]


@pytest.mark.parametrize("least_kept", [0, 50])
def test_the_top_is_the_same_when_memory_is_bounded(least_kept, whole, monkeypatch):
    def ranked(top):
        with confluence.assembly.open_run(whole, "best") as (parts, trained):
            models, task = [of.params for of in trained], parts.task("spend")
            return ranking.predict_visible(parts, models, task, "2020-06-01", top).ranked

    everything = ranked(None)
    monkeypatch.setattr(ranking, "_LEAST_KEPT", least_kept)
    assert ranked(9).rows.tolist() == everything.rows[:9].tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--at", "soon"], "expected a time such as 2026-01-01 for --at, found 'soon'"),
        (["--at", "2022-01-01", "--top", 0], "expected at least 1 for --top, found 0"),
        (["--seeds", "s.csv", "--top", 5], "expected --at TIME with --top, found none"),
        (["--at", "1999-01-01"], 'expected rows of table "customers" that are visible at 1999'),
        (["--at", "2022-01-01", "--out", "none/top.csv"], "none, found none; create it"),
        (["--at", "2022-01-01", "--out", "top.parquet"], "expected a CSV file for --out, found"),
    ],
)
def test_invalid_options_of_predict_give_one_line(options, message, whole, tmp_path):
    shown = command("predict", whole, "--task", "churn", *options)
    assert (shown.returncode, shown.stdout) == (1, "")
    assert message in shown.stderr
    assert "Traceback" not in shown.stderr


def test_categories_have_no_highest(whole):
    shown = command(
        "predict", whole, "--task", "products.material", "--at", "2022-01-01", "--top", 5
    )
    assert (shown.returncode, shown.stdout) == (1, "")
    assert "demo-shop/products.material predicts a category; leave --top out" in shown.stderr


def test_a_time_outside_the_data_is_predicted_with_a_warning(whole, demo_store, tmp_path):
    with (demo_store.parent / "data/task_churn.csv").open() as file:
        times = sorted(line["obs_time"] for line in csv.DictReader(file))
    # Rows are later than the last seed: their times raise no doubt.
    inside = [times[0], times[-1], "2023-11-20"]
    assert times[-1] < inside[-1]
    path = seeds_file(tmp_path, [("1", time) for time in inside])
    shown = command("predict", whole, "--task", "churn", "--seeds", path)
    assert (len(lines_of(shown)), shown.stderr) == (3, "")
    path = seeds_file(tmp_path, [("1", time) for time in ["2202-01-01", *inside, "2019-12-31"]])
    shown = command("predict", whole, "--task", "churn", "--seeds", path)
    # The customer did not exist in 2019.
    assert len(lines_of(shown)) == 4
    assert "first seen at 2020-01-01 00:00:00 (line 6)" in shown.stderr
    assert (
        "2 of 5 observation times are outside the times of the data: 2202-01-01, 2019-12-31; the "
        f"seeds of demo-shop/churn are from {times[0][:10]} 00:00:00 to {times[-1][:10]} 00:00:00, "
        "the rows until 2023-12-"
    ) in shown.stderr
    shown = command("predict", whole, "--task", "churn", "--at", "2262-01-01", "--top", 1)
    assert len(lines_of(shown)) == 1
    assert "1 of 1 observation times are outside the times of the data: 2262" in shown.stderr
    with pytest.warns(UserWarning, match="outside the times of the data: 2262-01-01"):
        confluence.predict(whole, "churn", [("1", "2262-01-01")])


def test_a_task_without_times_warns_of_none(whole):
    shown = command("predict", whole, "--task", "products.material", "--at", "2262-01-01")
    assert (len(lines_of(shown)), shown.stderr) == (600, "")


def test_predict_agrees_with_evaluate_on_the_seeds_of_a_split(tiny, demo_store, tmp_path):
    # Each context is whole: no draw decides which rows it has.
    metadata = headwater.Store(demo_store).metadata()
    relations = [
        f"{metadata['tables'][of['child']]['name']}.{of['name']}" for of in metadata["relations"]
    ]
    widths = {name: 3 if name == "orders.customer_id" else 0 for name in relations}
    inline = ", ".join(f"'{name}'={width}" for name, width in widths.items())
    settings = [*tiny, "data.children=latest", f"data.child_widths={{{inline}}}"]
    run_folder, out = tmp_path / "run", tmp_path / "answers.csv"
    confluence.train(confluence.load(None, [*settings, "optimizer.steps=12"]), run_folder)
    confluence.evaluate(run_folder, out=out)
    with out.open(newline="") as file:
        answers = list(csv.DictReader(file))
    for task in ("churn", "spend"):
        # Backwards: a prediction does not depend on its batch.
        own = [line for line in answers if line["task"] == f"demo-shop/{task}"][::-1]
        seeds = [(line["key"], line["obs_time"]) for line in own]
        found = np.array([float(of.value) for of in confluence.predict(run_folder, task, seeds)])
        wanted = np.array([float(line["prediction"]) for line in own])
        assert np.ptp(wanted) > 0.01 * abs(wanted).max()
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_predictions_replace_no_file(whole, tmp_path):
    path = seeds_file(tmp_path, [("1", "2022-01-01")])
    kept = path.read_text()
    shown = command("predict", whole, "--task", "churn", "--seeds", path, "--out", path)
    assert shown.returncode == 1
    assert f"{path} is there already; remove it, or choose another file" in shown.stderr
    assert path.read_text() == kept


def test_a_reader_that_stops_early_is_no_error(whole):
    program = Path(sys.executable).parent / "confluence"
    line = [program, "predict", whole, "--task", "churn", "--at", "2022-01-01"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout.readline().startswith(b"key")
        running.stdout.close()
        told = running.stderr.read()
        assert running.wait() == 0, told
        assert b"pipe" not in told

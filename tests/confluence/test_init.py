"""`confluence init`: a configuration from what contexts hold and how fast the machine is."""

import dataclasses
import json
import re
import sys

import numpy as np
import pytest

import headwater
from confluence import api, cli, config, contexts, draft, pace, speed
from confluence.feed import open_sampler
from confluence.parallel import Processes
from runs import confluence, sets
from stores import prepare_tables

USERS, EVENTS, PAGES = 200, 6000, 20
# Minutes for too few steps.
SHORT = ["--task", "returns", "--minutes", 1]

SCHEMA = """
database = "site"

[[table]]
name = "countries"
key = "id"
columns = { id = "ignored", size = "numerical" }

[[table]]
name = "users"
key = "id"
columns = { id = "ignored", country = "ignored", age = "numerical" }
references = [{ columns = "country", to = "countries" }]

[[table]]
name = "pages"
key = "id"
columns = { id = "ignored", length = "numerical" }

[[table]]
name = "events"
key = "id"
time = { column = "at" }
columns = { id = "ignored", user = "ignored", page = "ignored", at = "timestamp" }
references = [{ columns = "user", to = "users" }, { columns = "page", to = "pages" }]

[[table]]
name = "clicks"
key = "id"
time = { through = "event" }
columns = { id = "ignored", event = "ignored", seconds = "numerical" }
references = [{ columns = "event", to = "events" }]

[[table]]
name = "refunds"
key = "id"
columns = { id = "ignored", user = "ignored", amount = "numerical" }
references = [{ columns = "user", to = "users" }]
"""

TASK = """
[[task]]
name = "{name}"
[task.derived]
anchor = "users"
source = "{name}"
key = "user"
time = "at"
target = "returns"
type = "boolean"
split = "split"
"""


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """A store of users with events of their own, on pages that all of them visit."""
    folder = tmp_path_factory.mktemp("site")
    draws = np.random.default_rng(3)
    days = np.datetime64("2022-01-01") + draws.integers(0, 700, EVENTS)
    seeds = [
        (
            user,
            "2023-12-15",
            user % 3 > 0,
            "val" if user % 5 == 0 else "test" if user % 5 == 1 else "train",
        )
        for user in range(USERS)
    ]
    tables = {
        "countries": (("id", "size"), [(n, n * 10.5) for n in range(3)]),
        "users": (("id", "country", "age"), [(n, n % 3, 20 + n % 50) for n in range(USERS)]),
        "pages": (("id", "length"), [(n, n * 1.5) for n in range(PAGES)]),
        "events": (
            ("id", "user", "page", "at"),
            [(n, n % USERS, draws.integers(PAGES), days[n]) for n in range(EVENTS)],
        ),
        "clicks": (("id", "event", "seconds"), [(n, n // 2, n % 7) for n in range(2 * EVENTS)]),
        # One user has refunds: too few to be seen in contexts of other users.
        "refunds": (("id", "user", "amount"), [(n, 0, n / 2) for n in range(5)]),
        "returns": (("user", "at", "returns", "split"), seeds),
        "untrained": (
            ("user", "at", "returns", "split"), [seed for seed in seeds if seed[3] != "train"],
        ),
    }  # fmt: skip
    tasks = "".join(TASK.format(name=name) for name in ("returns", "untrained"))
    return prepare_tables(folder, SCHEMA + tasks, tables, dimension=32)


@pytest.fixture
def fixed_speed(monkeypatch):
    """Replaces what is measured of the machine by these seconds."""

    def fix(compile_seconds=5.0, step_seconds=0.2, predict_seconds=0.05):
        found = speed.Speed(compile_seconds, compile_seconds, step_seconds, predict_seconds)
        monkeypatch.setattr(speed, "measure", lambda _: found)

    fix()
    return fix


def drafted(store, minutes=6.0):
    return draft.init(store, ["returns"], minutes)


def test_the_written_file_loads_back_to_the_same_configuration(site, fixed_speed, tmp_path):
    found = drafted(site)
    (tmp_path / "my.toml").write_text(found.to_toml())
    assert config.load(tmp_path / "my.toml") == found.config
    assert found.to_toml().startswith(f"# Written by: confluence init {site} --task returns")
    for line in ("site/returns: 120 train, 40 val and 40 test seeds", "epochs", "minutes", "Cut:"):
        assert any(line in of for of in found.summary)


def test_relations_without_rows_are_named_if_few_and_counted_if_many():
    names = [f"results.{n}" for n in range(13)]
    assert draft.left_out_lines([]) == []
    assert draft.left_out_lines(names[:2]) == ["  none by results.0, results.1"]
    assert "results.11" in draft.left_out_lines(names[:12])[0]
    (line,) = draft.left_out_lines(names)
    assert line == "  none by 13 other relations (width 0 in data.child_widths)"


def test_a_second_draft_differs_in_lines_of_the_machine_alone(site, fixed_speed):
    def lines(found):
        return [line for line in found.to_toml().splitlines() if "machine" not in line]

    first = drafted(site)
    fixed_speed(9.0, 1.1, 0.3)
    second = drafted(site)
    assert first.to_toml() != second.to_toml()
    assert lines(first) == lines(second)
    assert first.config.optimizer.steps > second.config.optimizer.steps


def test_the_own_history_is_wide_and_hubs_are_narrow(site, fixed_speed):
    child_widths = drafted(site).config.data.child_widths
    assert child_widths["events.user"] >= 6
    assert 1 <= child_widths["clicks.event"] <= 4
    # All users of a country tell little of one of them.
    assert child_widths["users.country"] <= child_widths["events.user"] // 2
    assert child_widths["refunds.user"] == 0
    # Nearly each event has a page of its own, so other events of the pages stay out, with room too.
    assert child_widths["events.page"] == 0
    assert drafted(site, 600).config.data.child_widths["events.page"] == 0


def test_more_minutes_give_more_cells_of_the_own_history(site, fixed_speed):
    few, many = drafted(site, 3).config.data, drafted(site, 60).config.data
    assert few.sequence_length < many.sequence_length
    assert few.child_widths["events.user"] < many.child_widths["events.user"]


def test_the_median_context_is_not_cut_and_little_is_padded(site, fixed_speed):
    shape = drafted(site).shape
    assert shape.cut < 0.5
    assert shape.data.sequence_length <= 128
    assert 1 - shape.contexts.cells.mean() / shape.data.sequence_length < 0.3


def test_every_relation_of_the_store_is_named_and_no_other(site, demo_store, fixed_speed):
    for store, task in ((site, "returns"), (demo_store, "spend")):
        found = draft.init(store, [task], 6).config
        metadata = headwater.Store(store).metadata()
        names = {relation.name for relation in contexts.relations_of(metadata)}
        assert set(found.data.child_widths) == names
        with open_sampler(found.data, found.run, Processes()) as sampler:
            sampler.next_train_batch()


def test_a_task_without_history_learns_from_its_parents_children(demo_store, fixed_speed):
    found = draft.init(demo_store, ["products.material"], 6)
    roles = {of.relation.name: of.role for of in found.shape.widths}
    assert roles["order_items.product_id"] == "history"
    assert found.config.data.child_widths["order_items.product_id"] > 0


def test_widths_count_rows_as_the_sampler_does(site):
    data = config.Data(stores=(str(site),), tasks=("returns",), children="latest")
    metadata = headwater.Store(site).metadata()
    only = {of.name: 0 for of in contexts.relations_of(metadata)} | {"events.user": 3}
    data = dataclasses.replace(data, child_widths=only)
    found = contexts.count(data, metadata, 1, sequence_length=64, max_rows=32)
    number = [of.name for of in contexts.relations_of(metadata)].index("events.user")
    assert len(found.rows) == contexts.SEEDS
    assert (found.children[:, number, 1] == 3).all()
    assert (found.children.sum(axis=(1, 2)) == 3).all()
    # The user, the country, three events and one to three pages.
    assert set(found.rows) <= {6, 7, 8}
    assert (found.near_cells == found.cells).all()
    assert found.quantile(1.0) == found.cells.max()


VISITS = 14

BUSY_TASK = TASK.replace('split = "split"', 'split = "split"\nhorizon = "30 days"')


@pytest.fixture(scope="session")
def busy(tmp_path_factory):
    """A store whose users have a history in many wide tables, and labels of two tasks."""
    folder = tmp_path_factory.mktemp("busy")
    schema = """
database = "site"
[[table]]
name = "users"
key = "id"
columns = { id = "ignored", age = "numerical" }
"""
    tables = {"users": (("id", "age"), [(n, n % 50) for n in range(USERS)])}
    for visit in range(VISITS):
        # All users have rows in the last table alone, whose rows fill a small context.
        is_last = visit == VISITS - 1
        columns = [f"c{n}" for n in range(110 if is_last else 12)]
        types = ", ".join(f'{name} = "numerical"' for name in columns)
        schema += f"""
[[table]]
name = "visits{visit:02}"
key = "id"
time = {{ column = "at" }}
columns = {{ id = "ignored", user = "ignored", at = "timestamp", {types} }}
references = [{{ columns = "user", to = "users" }}]
"""
        users = USERS if is_last else USERS - 10
        tables[f"visits{visit:02}"] = (
            ("id", "user", "at", *columns),
            [
                (n, n % users, "2022-01-01", *(n % (7 + k) for k in range(len(columns))))
                for n in range(3 * users)
            ],
        )
    seeds = [
        (user, day, user % 3 > 0, split)
        for user in range(USERS)
        for day, split in (("2022-03-01", "train"), ("2022-05-01", "train"), ("2022-07-01", "val"),
                           ("2022-09-01", "test"))
    ]  # fmt: skip
    for name in ("returns", "pays"):
        schema += BUSY_TASK.format(name=name)
        tables[name] = (("user", "at", "returns", "split"), seeds)
    return prepare_tables(folder, schema, tables, dimension=32)


def test_labels_of_other_tasks_take_no_room(busy, fixed_speed):
    found = drafted(busy, 12)
    roles = {of.relation.name: (of.role, of.width) for of in found.shape.widths}
    assert roles["pays labels.user"] == ("labels", 0)
    assert roles["returns labels.user"][0] == "history"
    assert roles["returns labels.user"][1] > 0
    assert any(
        line.startswith("Left out: pays labels.user, the labels of tasks that this configuration")
        for line in found.summary
    )
    both = draft.init(busy, ["returns", "site/pays"], 12).config.data.child_widths
    assert both["pays labels.user"] > 0


def test_the_commonest_history_is_there_and_what_is_cut_is_named(busy, fixed_speed):
    found = drafted(busy, 1)
    child_widths = found.config.data.child_widths
    assert child_widths["visits13.user"] > 0
    assert child_widths["returns labels.user"] > 0
    cut = [name for name in child_widths if name.startswith("visits") and not child_widths[name]]
    assert cut
    (line,) = [line for line in found.summary if "have no room for a row of each table" in line]
    assert line.startswith(f"Cut: {', '.join(cut[:12])}")
    (line,) = draft.without_room_lines([f"t{n}" for n in range(14)], 96)
    assert line.startswith("Cut: t0, t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11 and 2 more: 96 ")
    # More minutes have more cells.
    assert all(
        width
        for name, width in drafted(busy, 60).config.data.child_widths.items()
        if name.startswith("visits")
    )


COUNTS = {"site/returns": {"train": 32_000, "val": 3_200, "test": 3_200}}


def test_steps_and_evaluations_fill_the_time_and_no_more():
    of_speed = speed.Speed(10.0, 10.0, 0.2, 0.05)
    found = pace.choose(720, 30, of_speed, COUNTS, 32)
    assert 0.8 * 12 < found.minutes <= 12
    assert found.steps % found.evaluate_every == 0
    assert found.epochs == found.steps * 32 / 32_000
    assert found.epochs >= 1 or "too few for one epoch" in " ".join(found.lines(of_speed))


def test_evaluations_take_a_small_share_of_the_time():
    for predict_seconds, is_whole in ((0.05, True), (0.3, False)):
        of_speed = speed.Speed(10.0, 10.0, 0.2, predict_seconds)
        found = pace.choose(720, 30, of_speed, COUNTS, 32)
        assert (found.evaluate_batches == 0) == is_whole
        assert (found.evaluate_batches or 100) * predict_seconds * 9 <= 0.15 * 720


def test_epochs_are_limited_and_few_seeds_get_some_steps():
    fast = speed.Speed(1.0, 1.0, 0.001, 0.001)
    assert pace.choose(3600, 1, fast, COUNTS, 32).epochs == pytest.approx(4, abs=0.1)
    few = {"site/returns": {"train": 64, "val": 32, "test": 32}}
    assert pace.choose(3600, 1, fast, few, 32).steps == 496


def test_too_few_minutes_for_an_epoch_are_reported():
    slow = speed.Speed(10.0, 10.0, 2.0, 1.0)
    found = pace.choose(120, 30, slow, COUNTS, 32)
    assert found.steps >= 16
    text = " ".join(found.lines(slow))
    assert "2 minutes are too few for one epoch" in text
    assert "the last evaluation of val and test takes" in text


def test_few_steps_are_sensible_only_if_they_are_an_epoch():
    of_speed = speed.Speed(1.0, 1.0, 2.0, 0.1)
    assert pace.choose(120, 30, of_speed, COUNTS, 32).is_too_short
    few = {"site/returns": {"train": 320, "val": 32, "test": 32}}
    assert not pace.choose(120, 30, of_speed, few, 32).is_too_short
    # Of many seeds, 500 steps are enough, though they are less than a tenth of an epoch.
    many = {"site/returns": {"train": 3_200_000, "val": 3_200, "test": 3_200}}
    found = pace.choose(3600, 30, of_speed._replace(step_seconds=4.0), many, 32)
    assert (found.sensible_steps, found.is_too_short) == (500, False)


def test_enough_minutes_are_enough_and_not_many_more():
    of_speed = speed.Speed(10.0, 10.0, 2.0, 1.0)

    def choose_for(minutes):
        return pace.choose(60 * minutes, 30, of_speed, COUNTS, 32)

    enough = pace.enough_minutes(2, choose_for, 10_080)
    assert enough == int(enough)
    assert not choose_for(enough).is_too_short
    assert choose_for(enough / 1.4).is_too_short


def test_minutes_for_too_few_steps_name_minutes_that_are_enough(
    demo_store, fixed_speed, tmp_path, capsys, monkeypatch
):
    fixed_speed(step_seconds=10.0)
    out = tmp_path / "run"
    command = ["train", demo_store, "--task", "churn", "--minutes", 2, "--out", out]
    status, output, errors = shown(capsys, *command)
    assert (status, output) == (1, "")
    steps = 16
    assert re.search(
        r"expected minutes for at least \d+ steps of demo-shop/churn, found 2 minutes, time for "
        rf"{steps} steps \(\S+ epochs\) on this machine; set about \d+ minutes, or train so few "
        rf"steps all the same with --set optimizer.steps={steps}",
        errors,
    ), errors
    assert not out.exists()
    with pytest.raises(config.ConfigError, match="expected minutes for at least"):
        api.train(demo_store, out, tasks="churn", minutes=2)
    # A draft is written all the same, and says so.
    found = draft.init(demo_store, "churn", 2)
    assert "# Too few minutes on this machine: expected minutes" in found.to_toml()
    # The steps are the user's own.
    trained = []

    def train(settings, *_, **__):
        trained.append(settings)
        raise config.ConfigError("enough for a test")

    monkeypatch.setattr(api, "train", train)
    shown(capsys, *command, "--set", f"optimizer.steps={steps}")
    assert [of.optimizer.steps for of in trained] == [steps]


def test_the_reason_for_model_epochs_stands_beside_the_decision(site, fixed_speed):
    found = drafted(site)
    (line,) = [line for line in found.summary if line.startswith("Absolute times")]
    value = config.toml_value(found.config.model.epochs)
    verb = "shown" if found.config.model.epochs else "hidden"
    assert line.startswith(
        f"Absolute times are {verb} (model.epochs = {value}), because of site/returns: "
    )
    assert f"\nepochs = {value}  # whether the model knows absolute times" in found.to_toml()


@pytest.mark.parametrize(
    ("tasks", "minutes", "message"),
    [
        (["return"], 6, "unknown task 'return' in site; did you mean returns?"),
        (["zzz"], 6, "unknown task 'zzz' in site; expected one of returns, untrained"),
        ([], 6, "expected the task to train on, found none; set --task to one of returns"),
        (["untrained"], 6, "expected train seeds of the task site/untrained, found none (40 val"),
        (["returns"], 0, "expected 0.1 to 10,080 minutes (a week), found 0; set --minutes"),
        (["returns"], -3, "found -3"),
        (["returns"], 1e9, "found 1e+09"),
        (["returns"], float("nan"), "found nan"),
    ],
)
def test_what_cannot_be_drafted_is_refused(tasks, minutes, message, site):
    with pytest.raises(config.ConfigError) as refused:
        draft.init(site, tasks, minutes)
    assert message in str(refused.value)


def shown(capsys, *arguments):
    """Runs the command in this process; returns its status, output and errors."""
    status = cli.main([str(argument) for argument in arguments])
    return status, *capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/nowhere", "--task", "returns"], "expected a store at /nowhere, found nothing"),
        (["SITE/..", "--task", "returns"], "not a store: expected a metadata.json"),
        (["SITE", "--task", "retruns"], "did you mean returns?"),
        (["SITE"], "set --task to one of returns, untrained"),
        (["SITE", "--task", "returns", "--minutes", 0], "found 0; set --minutes"),
        (
            ["SITE", "--config", "cpu-small"],
            "expected either STORE, which chooses the configuration, or --config, found both",
        ),
        (["SITE", "--resume"], "or --resume, found both"),
        (["SITE", "--members", 3], "or --members, found both"),
        # A setting is refused before anything is measured, which needs minutes.
        (["SITE", *SHORT, "--set", "steps=5"], "expected section.key=value, such as"),
        (["SITE", *SHORT, "--set", "optimizer.steps=abc"], "expected an integer for optimizer.st"),
        (["SITE", *SHORT, "--set", "optimizer.steps=0"], "expected at least 1 for optimizer.steps"),
        (["SITE", *SHORT, "--set", "optimizer.stepz=5"], "did you mean optimizer.steps?"),
        (["SITE", *SHORT, "--set", "optimiser.steps=5"], "did you mean optimizer?"),
        (["--minutes", 3], "expected a STORE with --minutes, found none; name the store first"),
        (["--config", "cpu-small", "--task", "returns"], "expected a STORE with --task"),
    ],
)
def test_a_refused_training_leaves_no_folder(
    arguments, message, site, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(draft, "_seed_counts", None)
    arguments = [str(of).replace("SITE", str(site)) for of in arguments]
    status, output, errors = shown(capsys, "train", *arguments, "--out", tmp_path / "run")
    assert (status, output) == (1, "")
    assert message in errors
    assert not (tmp_path / "run").exists()


def test_a_run_in_place_of_a_store_is_refused(tmp_path, capsys):
    run = tmp_path / "a run"
    run.mkdir()
    (run / "config.toml").write_text(config.Config().to_toml())
    message = (
        f"confluence: expected a store, found the run '{run}'; name a store, or start from the run "
        f"with `confluence train --from '{run}' --out FOLDER`\n"
    )
    assert shown(capsys, "init", run, "--task", "returns") == (1, "", message)
    asked = ["--task", "returns", "--out", tmp_path / "out"]
    assert shown(capsys, "train", run, *asked) == (1, "", message)


def test_init_writes_a_new_file_or_standard_output(site, fixed_speed, tmp_path, capsys):
    command = ["init", site, "--task", "returns", "--minutes", 6]
    path = tmp_path / "my.toml"
    status, output, _ = shown(capsys, *command, "--out", path)
    assert status == 0
    assert f"next: confluence train --config {path} --out FOLDER" in output
    status, text, _ = shown(capsys, *command)
    kept = [
        [line for line in of.splitlines() if "machine" not in line]
        for of in (text, path.read_text())
    ]
    assert (status, kept[0]) == (0, kept[1])
    before = path.read_text()
    status, output, errors = shown(capsys, *command, "--out", path)
    assert (status, output) == (1, "")
    assert f"expected no file at {path}, found one; name another --out, or remove it" in errors
    assert path.read_text() == before
    status, _, errors = shown(capsys, *command, "--out", tmp_path / "no/my.toml")
    assert status == 1
    assert "expected a folder for" in errors


def test_a_configuration_for_a_full_disk_leaves_no_file(site, fixed_speed, full_disk, capsys):
    out = full_disk / "my.toml"
    status, _, errors = shown(
        capsys, "init", site, "--task", "returns", "--minutes", 6, "--out", out
    )
    assert (status, out.exists()) == (1, False)
    assert errors.startswith(f"confluence: writing {out}: no space left on the device; nothing")


def test_presets_are_printed(capsys):
    assert shown(capsys, "presets") == (0, "base\ncpu-small\n", "")
    status, text, _ = shown(capsys, "presets", "cpu-small")
    assert status == 0
    assert "sequence_length = 128" in text
    status, _, errors = shown(capsys, "presets", "small")
    assert status == 1
    assert "expected a preset (base, cpu-small), found 'small'" in errors


def test_training_a_store_runs_its_draft(site, fixed_speed, tmp_path):
    out = tmp_path / "run"
    finished = confluence(
        "train", site, "--task", "returns", "--minutes", 0.1, "--set", "run.boosting=false",
        "--set", "run.threads=1", "--out", out,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    assert "site/returns: 120 train, 40 val and 40 test seeds" in finished.stderr
    ran, expected = config.load(out / "config.toml"), drafted(site, 0.1).config
    assert ran.data == dataclasses.replace(expected.data, stores=(str(site),))
    assert dataclasses.replace(ran.model, compute="auto") == expected.model
    assert (ran.run.threads, ran.run.boosting) == (1, False)
    results = json.loads((out / "results.json").read_text())
    assert results["tasks"]["site/returns"]["test"]["seeds"] == 40
    again = confluence("train", site, "--task", "returns", "--out", out)
    assert again.returncode == 1
    assert "already holds a run" in again.stderr


def test_a_run_that_is_refused_late_leaves_no_folder(site, monkeypatch, tmp_path, capsys):
    """A sink is opened after the folder is made; a folder that was there before stays."""
    monkeypatch.setitem(sys.modules, "wandb", None)
    settings = [
        f"data.stores={site}", "data.tasks=returns", "data.sequence_length=16", "data.max_rows=4",
        "run.sinks=wandb",
    ]  # fmt: skip
    command = ["train", *sets(settings), "--config", "cpu-small", "--out"]
    status, _, errors = shown(capsys, *command, tmp_path / "run")
    assert status == 1
    assert "wandb cannot be imported" in errors
    assert not (tmp_path / "run").exists()
    (tmp_path / "mine").mkdir()
    assert shown(capsys, *command, tmp_path / "mine")[0] == 1
    assert (tmp_path / "mine").exists()

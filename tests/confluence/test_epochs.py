"""Whether the model knows absolute times: decided from the train labels, printed, recorded."""

import numpy as np
import polars
import pytest

import headwater
import runs
from confluence import assembly, config, epochs
from confluence.batch import CATEGORICAL, NUMERICAL, TIMESTAMP
from confluence.seeds import DAY_MICROSECONDS, NO_TIME, Seeds

YEARS = 10


def level(of_year, years=YEARS, noise=1.0, count=4000, seed=1):
    """Measures labels that are the level of their time, in years, and noise."""
    draws = np.random.default_rng(seed)
    time = draws.random(count) * years
    labels = np.array([of_year(t) for t in time]) + noise * draws.normal(size=count)
    days = 365.25 * (time + 30)  # since 1970
    return epochs.measure_level((days * DAY_MICROSECONDS).astype(np.int64), labels)


def test_a_level_that_grows_or_falls_steadily_moves():
    assert level(lambda year: 0.3 * year).moves
    assert level(lambda year: -0.3 * year).moves
    assert level(lambda year: 0.3 * year).unit == "year"
    # Over a short span by quarters.
    found = level(lambda year: year, years=2)
    assert found.moves
    assert (found.unit, len(found.means)) in (("quarter", 8), ("quarter", 9))


def test_a_level_that_stays_or_wanders_does_not_move():
    for seed in range(20):
        assert not level(lambda _: 3.0, seed=seed).moves
        assert not level(lambda year: np.sin(2 * year), seed=seed).moves
        # Of few labels some means are in order by chance.
        assert not level(lambda _: 3.0, years=5, count=80, seed=seed).moves
    # Too few labels, too few periods, too short a move to matter.
    assert not level(lambda year: 0.3 * year, noise=20, count=300).moves
    assert not level(lambda year: year, years=0.6).moves
    assert not level(lambda year: 0.02 * year, count=400_000).moves
    # One jump is no steady move.
    assert not level(lambda year: 50 * (int(year) == 9)).moves
    assert not level(lambda _: 3.0, noise=0.0).moves


def test_labels_without_noise_may_move():
    assert level(lambda year: int(year), noise=0.0).moves


def measured(dates, labels):
    """Measures labels of these dates."""
    times = np.array(dates, "datetime64[us]").astype(np.int64)
    return epochs.measure_level(times, np.array(labels, float))


def of_years(*means, counts=10):
    """Measures ten labels a year with a mean of its own, half of them half above it."""
    dates = [f"{2000 + year}-06-0{1 + day % 9}" for year in range(len(means)) for day in range(10)]
    labels = [mean + (0.5 if day % 2 else -0.5) for mean in means for day in range(10)]
    last = len(labels) - 10 + counts
    return measured(dates[:last], labels[:last])


def test_the_level_of_years_by_hand():
    found = of_years(0, 1, 2, 3, 4, 5)
    assert (found.unit, found.means.tolist()) == ("year", [0, 1, 2, 3, 4, 5])
    # The first and the last two years have 20 labels each, of variance 1/2.
    assert found.correlation == pytest.approx(1)
    assert found.errors == pytest.approx(4 / np.sqrt(0.5 / 20 + 0.5 / 20))
    assert found.deviations == pytest.approx(4 / np.sqrt(0.25 + 35 / 12))
    assert str(found) == "6 years, mean 0 to 5, rank correlation 1.00"
    # Of fewer labels the mean of a period is no level.
    assert of_years(0, 1, 2, 3, 4, counts=9).means.tolist() == [0, 1, 2, 3]
    # The last of 5 years is further off, and of another variance than the first.
    uneven = measured(
        [f"{year}-06-01" for year in range(2000, 2005) for _ in range(10)],
        [*[0, 2] * 5, *[3] * 10, *[4] * 10, *[5] * 10, *[5, 9] * 5],
    )
    assert uneven.errors == pytest.approx(6 / np.sqrt(1 / 10 + 4 / 10))


def test_four_periods_are_enough_and_three_are_not():
    assert of_years(0, 1, 2, 3).correlation == pytest.approx(1)
    assert str(of_years(0, 1, 2, 3)).startswith("4 quarters, mean 0 to 3")
    found = of_years(0, 1, 2)
    assert str(found) == "3 quarters of labels, fewer than 4"
    assert found[2:] == (0.0, 0.0, 0.0)


def test_labels_of_less_than_four_years_are_of_quarters():
    months = np.arange("2020-01", "2022-01", dtype="datetime64[M]").repeat(4)
    found = measured(months, months.astype(int) // 3)
    assert found.unit == "quarter"
    np.testing.assert_allclose(np.diff(found.means), np.ones(7))
    for days, unit in ((1459, "quarter"), (1460, "year")):
        end = np.datetime64("2001-01-01") + np.timedelta64(days, "D")
        assert measured(["2001-01-01", end], [0, 1]).unit == unit


def test_a_level_without_spread_moves_beyond_chance_or_not_at_all():
    dates = [f"{year}-06-01" for year in range(2000, 2005) for _ in range(10)]
    assert measured(dates, [3] * 50)[2:] == (0.0, 0.0, 0.0)
    down = measured(dates, [-(of // 10) for of in range(50)])
    assert (down.errors, down.correlation) == (-np.inf, pytest.approx(-1))
    assert down.deviations == pytest.approx(-4 / np.sqrt(2))


@pytest.mark.parametrize(
    ("means", "correlation"), [([1, 1, 2, 3], 0.948683), ([1, 1, 2, 2], 0.894427), ([5, 5], 0)]
)
def test_equal_means_share_a_rank(means, correlation):
    assert epochs._rank_correlation(np.array(means)) == pytest.approx(correlation, abs=1e-6)


def test_a_level_that_moves_does_so_by_three_measures():
    at_least = {"correlation": 0.8, "errors": 4.0, "deviations": 0.25}
    for sign in (1, -1):
        found = {name: sign * of for name, of in at_least.items()}
        assert epochs.Level("year", np.zeros(4), **found).moves
        for name, of in found.items():
            assert not epochs.Level("year", np.zeros(4), **found | {name: 0.99 * of}).moves


def advice(kind, train_days, scored_days, labels=None):
    times = np.array(train_days, np.int64) * DAY_MICROSECONDS
    labels = np.zeros(len(times)) if labels is None else labels
    train = Seeds(np.zeros(len(times), np.uint32), times, labels, np.zeros((len(times), 0)))
    return epochs._of_task(kind, train, {"test": np.array(scored_days) * DAY_MICROSECONDS})


def test_the_advice_depends_on_the_target_and_on_when_it_is_scored():
    early, late = np.arange(3000), np.arange(3000, 3500)
    assert advice(NUMERICAL, early, late)[0] is False
    assert advice(NUMERICAL, early, late, early / 100.0)[0] is True
    assert advice(NUMERICAL, early, early)[0] is None
    # A single late train seed makes no training period longer.
    assert advice(NUMERICAL, np.append(early, 4000), late)[0] is False
    assert advice(TIMESTAMP, early, late)[0] is True
    assert advice(CATEGORICAL, early, late, early / 100.0)[0] is False
    # Half of them must lie after training.
    assert advice(TIMESTAMP, early, [2969, 2999]) == (
        True, "test lies after training, and its target is a time",
    )  # fmt: skip
    assert advice(TIMESTAMP, early, [2969, 2969, 2999])[0] is None
    assert advice(CATEGORICAL, early, late)[1].endswith("and a category has no level")
    assert advice(NUMERICAL, early, late, early / 100.0)[1].startswith(
        "test lies after training, and its level moves steadily (9 years, mean "
    )
    assert advice(NUMERICAL, [], late) == (None, "it has no train labels")
    timeless = Seeds(np.zeros(3, np.uint32), np.full(3, NO_TIME), np.zeros(3), np.zeros((3, 0)))
    assert epochs._of_task(NUMERICAL, timeless, {"test": timeless.times})[0] is None


def test_one_task_that_needs_absolute_times_decides():
    def decided(*wanted):
        return epochs.decide([epochs.Advice("a/b", of, "") for of in wanted])

    assert decided(None, False, True) is True
    assert decided(None, False) is False
    assert decided(None) is True


SCHEMA = """
database = "firm"

[[table]]
name = "people"
key = "id"
columns = { id = "ignored", age = "numerical" }

[[task]]
name = "pay"
[task.derived]
anchor = "people"
source = "seeds"
key = "person"
time = "at"
target = "pay"
type = "numerical"
split = "split"
"""


def firm(folder, growth, later):
    """Makes a store of eight years of labels; those of the last two, val and test, are higher."""
    draws = np.random.default_rng(2)
    days = np.sort(draws.integers(0, 8 * 365, 1600))
    split = np.array(["train", "val", "test"])[np.maximum(0, days // 365 - 5)]
    tables = {
        "people": {"id": np.arange(50), "age": draws.integers(20, 60, 50)},
        "seeds": {
            "person": draws.integers(0, 50, 1600),
            "at": np.datetime64("2010-01-01") + days * np.timedelta64(1, "D"),
            "pay": growth * days + draws.normal(size=1600) + later * (split != "train"),
            "split": split,
        },
    }
    folder.mkdir()
    (folder / "schema.toml").write_text(SCHEMA)
    frames = {name: polars.DataFrame(columns) for name, columns in tables.items()}
    headwater.prepare(frames, folder / "schema.toml", folder / "store", dimension=32)
    return folder / "store"


def test_a_run_decides_prints_and_records_it(tiny, tmp_path):
    # Val and test labels, however high, tell nothing.
    store = firm(tmp_path / "firm", growth=0.0, later=100.0)
    changed = [
        f"data.stores={store}", "data.tasks=['pay']", "optimizer.steps=1", "model.layers=1",
        "optimizer.warmup_steps=0", "model.epochs=auto",
    ]  # fmt: skip
    out = tmp_path / "run"
    finished = runs.run([*tiny, *changed], out)
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr.startswith(
        "confluence: absolute times are hidden (model.epochs = false), because of firm/pay: val "
        "and test lie after training, and its level does not move steadily (6 years, mean "
    )
    assert finished.stderr.count("\n") == 1
    assert "epochs = false\n" in (out / "config.toml").read_text()
    resumed = runs.run([], out, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "model.epochs" not in resumed.stderr


def resolved(store, own, is_new, *more, is_leader=True):
    settings = config.load(None, [f"data.stores={store}", f"model.epochs={own}", *more])
    stores = assembly.open_stores(settings)
    return epochs.resolve(settings, stores, is_new=is_new, is_leader=is_leader).model.epochs


def test_a_steady_level_is_decided_alike_when_resumed(tmp_path, capsys):
    store = firm(tmp_path / "firm", growth=0.002, later=0.0)
    for is_new in (True, False):
        assert resolved(store, "auto", is_new) is True
        shown = capsys.readouterr().err
        assert shown.startswith(
            "confluence: absolute times are shown (model.epochs = true), because of firm/pay: "
        )
        assert "its level moves steadily" in shown


def test_a_setting_against_the_rule_stands_with_advice(tmp_path, capsys):
    store = firm(tmp_path / "firm", growth=0.002, later=0.0)
    assert resolved(store, "false", True) is False
    shown = capsys.readouterr().err
    assert shown.startswith(
        "confluence: absolute times are hidden (model.epochs = false); advice: set model.epochs = "
        "true, because of firm/pay: "
    )
    assert shown.count("\n") == 1
    assert resolved(store, "true", True) is True
    assert resolved(store, "false", False) is False
    # Rank 0 alone tells it; all decide alike.
    for is_new in (True, False):
        assert resolved(store, "false", is_new, is_leader=False) is False
        assert resolved(store, "auto", is_new, is_leader=False) is True
    assert capsys.readouterr().err == ""


def test_a_run_without_tasks_needs_no_times(tmp_path, capsys):
    store = firm(tmp_path / "firm", growth=0.0, later=0.0)
    pools = ["data.tasks=[]", "data.pools={ people = '2012-01-01' }", "data.mask_share=0.2"]
    assert resolved(store, "auto", True, *pools) is True
    assert capsys.readouterr().err == (
        "confluence: absolute times are shown (model.epochs = true), because there is no task\n"
    )
    # No task speaks against it either.
    assert resolved(store, "false", True, *pools) is False
    assert capsys.readouterr().err == ""


def test_a_run_from_another_gets_no_advice_on_what_that_one_fixes(tmp_path, capsys):
    store = firm(tmp_path / "firm", growth=0.002, later=0.0)
    assert resolved(store, "false", True, "optimizer.start_from=runs/cells") is False
    assert capsys.readouterr().err == ""
    assert resolved(store, "false", True) is False
    assert "advice: set model.epochs = true" in capsys.readouterr().err

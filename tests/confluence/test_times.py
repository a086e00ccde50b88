"""Times as text and arrays, and the times of a task, beside which a prediction is doubtful."""

from types import SimpleNamespace

import numpy as np
import pytest

from confluence import config, seeds, time_range, times
from confluence.batch import NUMERICAL
from confluence.evaluation import Task
from headwater.sampler import micros

DAY = 86_400_000_000
FIRST = 10 * 365 * DAY + 2 * DAY  # 1980-01-01


@pytest.mark.parametrize("time", [2023, 0, FIRST - 1, np.int64(1_700_000_000)])
def test_an_integer_that_looks_like_a_year_or_seconds_is_refused(time):
    with pytest.raises(config.ConfigError, match=f"for at, found the integer {time}, which is 19"):
        times.check_given("at", time)


@pytest.mark.parametrize("time", [FIRST, "2023", None, True, 2023.0, np.int64(FIRST)])
def test_microseconds_from_1980_on_and_other_values_are_not_refused(time):
    times.check_given("at", time)


def test_a_time_is_rounded_to_a_microsecond_and_shown_if_a_year_has_it():
    assert times.text(DAY + 1.6) == "1970-01-02T00:00:00.000002"
    assert times.text(2.0**63) == "9223372036854775808"
    assert times.short_text(DAY + 3_999_999) == "1970-01-02 00:00:03"
    given = np.array([DAY + 1.6, -1.6, 2.0**63, -(2.0**63), 1e300, -1e300, np.nan, 9e18, -9e18])
    has_year = [True, True, *[False] * 5, True, True]
    assert [times.is_time(of) for of in given] == has_year
    found = times.array(given)
    assert (~np.isnat(found)).tolist() == has_year
    assert found[has_year].astype(np.int64).tolist() == [DAY + 2, -2, 9 * 10**18, -9 * 10**18]


TASK = Task("shop/spend", 1, NUMERICAL, {}, sees_everything=False)


@pytest.fixture
def parts(monkeypatch):
    """Returns a function that gives the parts of a run whose tables and seeds have these times."""

    def of(by_split, *of_tables):
        def read(settings, stores, task, split, *, with_cells):
            assert (settings, task, with_cells) == ("settings", TASK, False)
            return SimpleNamespace(times=np.array(by_split[split], np.int64))

        monkeypatch.setattr(seeds, "read", read)
        tables = [
            {"time": time, "columns": [{"stats": {"max_us": last}}]} for time, last in of_tables
        ]
        store = SimpleNamespace(metadata=lambda: {"tables": tables})
        counts = {split: {TASK.name: len(by_split.get(split, ()))} for split in SPLITS}
        sampler = SimpleNamespace(seed_counts=counts.get)
        return SimpleNamespace(settings="settings", stores=[None, store], sampler=sampler)

    return of


SPLITS = ("train", "val", "test")
COLUMN = {"column": {"column": 0, "delay_us": 3}}


def test_the_times_of_a_task_are_those_of_its_seeds_and_of_all_rows(parts):
    by_split = {"train": [20, 10, seeds.NO_TIME], "test": [40, 30]}
    # The second table has the time of its parents.
    tables = [(None, 900), ({"parent": 0}, 900), (COLUMN, 7)]
    assert time_range.of_task(parts(by_split, *tables), TASK) == (10, 40, 40)
    assert time_range.of_task(parts(by_split, *tables, (COLUMN, 50)), TASK) == (10, 40, 53)
    assert time_range.of_task(parts(by_split), TASK) == (10, 40, 40)
    assert time_range.of_task(parts({}), TASK) is None
    timeless = parts({"val": [seeds.NO_TIME]}, *tables)
    assert time_range.of_task(timeless, TASK) is None
    assert time_range.warning(timeless, TASK, ["1970-01-01"]) is None


def test_times_outside_those_of_the_task_are_named_up_to_five(parts):
    first, last, row = (micros(of) for of in ("2020-01-01", "2020-02-01", "2020-03-01"))
    of_run = parts({"train": [first, last]}, (COLUMN, row - 3))
    inside = ["2020-01-01", "2020-01-15", "2020-03-01", None]
    assert time_range.warning(of_run, TASK, inside) is None
    early = [f"2019-12-{day}" for day in range(25, 32)]
    told = time_range.warning(of_run, TASK, [*inside, *early[:4], early[0], "2020-03-02"])
    assert told == (
        "6 of 10 observation times are outside the times of the data: 2019-12-25, 2019-12-26, "
        "2019-12-27, 2019-12-28, 2020-03-02; the seeds of shop/spend are from 2020-01-01 00:00:00 "
        "to 2020-02-01 00:00:00, the rows until 2020-03-01 00:00:00; correct a time that is a "
        "typing error"
    )
    assert "2019-12-29 and 2 more; the seeds" in time_range.warning(of_run, TASK, early)

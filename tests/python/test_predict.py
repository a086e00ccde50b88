"""Declared tasks: their seeds and targets are those of a plain program."""

import datetime
import random
import subprocess
import sys

import pyarrow
import pyarrow.parquet
import pytest

import headwater
from shop import write_csv

DAY = datetime.timedelta(days=1)
START = datetime.datetime(2022, 1, 1)
TRAIN_UNTIL, VAL_UNTIL = datetime.datetime(2022, 7, 1), datetime.datetime(2022, 9, 9)

SCHEMA = """
database = "shop"

[[table]]
name = "users"
key = "id"
time = { column = "joined" }
columns = { id = "identifier", joined = "timestamp" }

[[table]]
name = "buys"
key = "id"
time = { column = "at" }
references = [{ columns = "user", to = "users" }]
columns = { id = "identifier", user = "identifier", at = "timestamp", paid = "boolean" }

[[table]]
name = "lines"
source = "buy lines"
key = "id"
time = { through = "buy", delay = "1 day" }
references = [{ columns = "buy", to = "buys" }, { columns = "user", to = "users" }]
[table.columns]
id = "identifier"
buy = "identifier"
user = "identifier"
price = "numerical"
kind = "categorical"
"""


def predict(**changes):
    """Returns a schema with one declared task."""
    fields = {
        "anchor": "users", "what": "count", "of": "lines", "horizon": "20 days",
        "train_until": "2022-07-01", "val_until": "2022-09-09",
    } | changes  # fmt: skip
    lines = [f"{key} = {value!r}" for key, value in fields.items() if value is not None]
    return SCHEMA + '\n[[task]]\nname = "question"\n[task.predict]\n' + "\n".join(lines)


@pytest.fixture(scope="module")
def tables():
    chance = random.Random(3)
    users = [(n, START + chance.randrange(200) * DAY) for n in range(30)]
    # Times at midnight meet the observation times exactly.
    buys = [
        (n, chance.randrange(30), START + chance.randrange(365) * DAY, chance.random() < 0.7)
        for n in range(400)
    ]
    lines = [
        (n, buy, buys[buy][1], chance.choice([None, 1.0, 2.5, 9.0]), chance.choice("abc"))
        for n, buy in enumerate(chance.randrange(400) for _ in range(900))
    ]
    columns = {
        "users": ("id", "joined"), "buys": ("id", "user", "at", "paid"),
        "buy lines": ("id", "buy", "user", "price", "kind"),
    }  # fmt: skip
    rows = {"users": users, "buys": buys, "buy lines": lines}
    return {
        name: dict(zip(columns[name], map(list, zip(*rows[name], strict=True)), strict=True))
        for name in rows
    }


@pytest.fixture(scope="module")
def folder(tables, tmp_path_factory):
    return write_csv(tmp_path_factory.mktemp("source"), tables)


def events(tables):
    """Yields user, time, price, kind and paid of each line."""
    buys = tables["buys"]
    lines = tables["buy lines"]
    for buy, user, price, kind in zip(
        lines["buy"], lines["user"], lines["price"], lines["kind"], strict=True
    ):
        yield user, buys["at"][buy], price, kind, buys["paid"][buy]


def answer(what, children):
    """Returns the target that a plain program makes of (time, value) pairs; None for no seed."""
    values = sorted(pair for pair in children if pair[1] is not None)
    match what:
        case "count":
            return len(children)
        case "exists":
            return float(bool(children))
        case "sum":
            return sum(value for _, value in values)
        case _ if not values:
            return None
        case "mean":
            return sum(value for _, value in values) / len(values)
        case "min" | "max":
            return {"min": min, "max": max}[what](value for _, value in values)
        case "first":
            return values[0][1]
        case "last":
            return min(value for time, value in values if time == values[-1][0])


def expected(tables, what, place, counts, *, horizon=20, every=20, active=None, known=1):
    """Returns the seeds of a plain program: {(split, user, observed at): target}.

    A line is known a day after its time, and what is asked of it `known` days after.
    """
    horizon, every = horizon * DAY, every * DAY
    found, all_events = {}, list(events(tables))
    last = max(event[1] for event in all_events)
    first = min(event[1] for event in all_events)
    at = TRAIN_UNTIL - 30 * every
    while at + horizon <= last:
        split = "train" if at < TRAIN_UNTIL else "val" if at < VAL_UNTIL else "test"
        end = {"train": TRAIN_UNTIL, "val": VAL_UNTIL, "test": last + DAY}[split]
        if at >= first and at + horizon + known * DAY <= end:
            for user, joined in zip(*tables["users"].values(), strict=True):
                own = [event for event in all_events if event[0] == user]
                was_active = active is None or any(
                    at - active * DAY < e[1] + DAY <= at for e in own
                )
                inside = [e for e in own if at < e[1] <= at + horizon and counts(e)]
                target = answer(what, [(e[1], e[place]) for e in inside])
                if joined <= at and was_active and target is not None:
                    found[split, user, at] = target
        at += every
    return found


def seeds(store, kind="numeric_values"):
    """Returns the seeds of a store's only task: {(split, user, observed at): target}."""
    found = {}
    stats = headwater.Store(store).metadata()["tasks"][0]["target"]["derived"]["column"]["stats"]
    with headwater.Sampler(store, default_batch_size=64, default_sequence_length=8) as sampler:
        for split in ("train", "val", "test"):
            for batch in sampler.evaluate(split):
                values = batch[kind][range(64), batch["target_pos"]].astype(float)
                if kind == "numeric_values":
                    values = values * (stats["std"] or 1) + stats["mean"]
                for row, time, value, weight in zip(
                    batch["seed_row"], batch["obs_time"], values, batch["seq_weight"], strict=True
                ):
                    if weight:
                        at = datetime.datetime(1970, 1, 1) + datetime.timedelta(
                            microseconds=int(time)
                        )
                        found[split, int(row), at] = value
    return found


@pytest.mark.parametrize(
    ("changes", "place", "counts", "options"),
    [
        ({}, 2, lambda e: True, {}),
        ({"horizon": "45 days", "every": "10 days"}, 2, lambda e: True,
         {"horizon": 45, "every": 10}),
        ({"horizon": "5 days", "every": "20 days", "active_within": "33 days"}, 2, lambda e: True,
         {"horizon": 5, "active": 33}),
        ({"what": "exists", "where": "kind = 'a' -- not b"}, 2, lambda e: e[3] == "a", {}),
        ({"what": "sum", "column": "price"}, 2, lambda e: True, {}),
        ({"what": "mean", "column": "price", "where": "price > 1"}, 2,
         lambda e: e[2] is not None and e[2] > 1, {}),
        ({"what": "min", "column": "price"}, 2, lambda e: True, {}),
        ({"what": "max", "column": "price", "active_within": "15 days"}, 2, lambda e: True,
         {"active": 15}),
        ({"what": "first", "column": "price"}, 2, lambda e: True, {}),
        ({"what": "last", "column": "price"}, 2, lambda e: True, {}),
    ],
)  # fmt: skip
def test_seeds_are_those_of_a_plain_program(
    changes, place, counts, options, tables, folder, tmp_path
):
    (tmp_path / "schema.toml").write_text(predict(**changes))
    headwater.prepare(folder, tmp_path / "schema.toml", tmp_path / "db")
    what = changes.get("what", "count")
    wanted = expected(tables, what, place, counts, **options)
    found = seeds(tmp_path / "db", "bool_values" if what == "exists" else "numeric_values")
    assert {key[0] for key in wanted} == {"train", "val", "test"}
    assert found.keys() == wanted.keys()
    assert found == pytest.approx(wanted, abs=1e-4)


def test_p7_no_target_of_a_split_is_known_after_its_end(tables, folder, tmp_path):
    schema = predict(what="sum", column="price").replace(
        'price = "numerical"', 'price = { type = "numerical", known = { delay = "15 days" } }'
    )
    (tmp_path / "schema.toml").write_text(schema)
    headwater.prepare(folder, tmp_path / "schema.toml", tmp_path / "db")
    wanted = expected(tables, "sum", 2, lambda e: True, known=16)
    assert seeds(tmp_path / "db") == pytest.approx(wanted, abs=1e-4)
    assert wanted.keys() < expected(tables, "sum", 2, lambda e: True).keys()


def as_parquet(tables, folder):
    """Writes the tables with types that a careless export has: years, seconds, floats as keys."""
    folder.mkdir()
    for name, columns in tables.items():
        table = pyarrow.table(columns)
        for key in ("user", "buy"):
            if key in table.column_names:
                place = table.column_names.index(key)
                table = table.set_column(place, key, table[key].cast(pyarrow.float64()))
        for time in ("joined", "at"):
            if time in table.column_names:
                place = table.column_names.index(time)
                seconds = table[time].cast(pyarrow.timestamp("s")).cast(pyarrow.int64())
                table = table.set_column(place, time, seconds)
        pyarrow.parquet.write_table(table, folder / f"{name}.parquet")
    return folder


def test_p1_seeds_do_not_depend_on_the_types_of_the_source(tables, folder, tmp_path):
    (tmp_path / "csv.toml").write_text(predict(what="last", column="price"))
    report = headwater.prepare(folder, tmp_path / "csv.toml", tmp_path / "csv")
    # Seconds for keys of users that are integers, and of lines that are floats.
    schema = predict(what="last", column="price").replace(
        'at = "timestamp"', 'at = { type = "timestamp", unit = "s" }'
    )
    schema = schema.replace('joined = "timestamp"', 'joined = { type = "timestamp", unit = "s" }')
    (tmp_path / "typed.toml").write_text(schema)
    source = as_parquet(tables, tmp_path / "typed")
    typed = headwater.prepare(source, tmp_path / "typed.toml", tmp_path / "db")
    assert seeds(tmp_path / "db") == seeds(tmp_path / "csv")
    assert typed["row_count"] == report["row_count"]


def test_p7_a_row_is_asked_about_when_it_is_known(tables, folder, tmp_path):
    late = predict().replace('{ column = "joined" }', '{ column = "joined", delay = "50 days" }')
    (tmp_path / "schema.toml").write_text(late)
    headwater.prepare(folder, tmp_path / "schema.toml", tmp_path / "db")
    found = seeds(tmp_path / "db")
    assert found
    for _, user, at in found:
        assert tables["users"]["joined"][user] + 50 * DAY <= at


def test_a_row_has_its_seeds_once_though_its_key_repeats(tables, folder, tmp_path):
    """As references do, the seeds belong to the first row of a key."""
    (tmp_path / "one.toml").write_text(predict())
    headwater.prepare(folder, tmp_path / "one.toml", tmp_path / "one")
    users, buys = tables["users"], tables["buys"]
    repeated = {
        **tables,
        "users": {
            "id": [*users["id"], 0, 1],
            "joined": [*users["joined"], START - 900 * DAY, START + 900 * DAY],
        },
        "buys": {
            name: [*values, *(values[:5] if name != "at" else [START + 3 * DAY] * 5)]
            for name, values in buys.items()
        },
    }
    source = write_csv(tmp_path / "repeated", repeated)
    schema = predict().replace(
        'database = "shop"', 'database = "shop"\n[limits]\nduplicate_keys = 9'
    )
    (tmp_path / "two.toml").write_text(schema)
    headwater.prepare(source, tmp_path / "two.toml", tmp_path / "two")
    assert seeds(tmp_path / "two") == seeds(tmp_path / "one")


def test_a_key_of_several_columns_is_named_in_any_order(tmp_path):
    """Its parts may be periods, and the reference may name them in another order."""
    source = write_csv(
        tmp_path / "source",
        {
            "teams": {"club": ["a", "b"] * 2, "year": [2001, 2001, 2002, 2002]},
            "games": {
                "year": [2001, 2001, 2001, 2002, 2002, 2002],
                "club": ["a", "a", "b", "b", "b", "b"],
                "day": [f"{2002 + n // 3}-0{n + 2}-01" for n in range(5)] + ["2004-08-01"],
            },
        },
    )
    schema = """
database = "league"
[[table]]
name = "teams"
key = ["club", "year"]
columns = { club = "categorical", year = { type = "timestamp", unit = "year" } }
[[table]]
name = "games"
time = { column = "day" }
references = [{ columns = ["year", "club"], to = "teams", to_columns = ["year", "club"] }]
columns = { year = "identifier", club = "identifier", day = "timestamp" }
[[task]]
name = "games"
[task.predict]
anchor = "teams"
what = "count"
of = "games"
horizon = "180 days"
train_until = "2002-08-01"
val_until = "2003-07-27"
"""
    (tmp_path / "schema.toml").write_text(schema)
    headwater.prepare(source, tmp_path / "schema.toml", tmp_path / "db")
    found = seeds(tmp_path / "db")
    counts = {}
    for (_, team, _), count in found.items():
        counts[team] = counts.get(team, 0) + round(count)
    assert {split for split, *_ in found} == {"train", "val", "test"}
    # The first game is before the first observation, and the last within no whole horizon.
    assert counts == {0: 1, 1: 1, 2: 0, 3: 2}


def test_a_category_can_be_the_target(tables, folder, tmp_path):
    (tmp_path / "schema.toml").write_text(predict(what="last", column="kind"))
    headwater.prepare(folder, tmp_path / "schema.toml", tmp_path / "db")
    task = headwater.Store(tmp_path / "db").metadata()["tasks"][0]
    wanted = expected(tables, "last", 3, lambda e: True)
    assert task["seed_count"] == len(wanted)
    assert task["target"]["derived"]["column"]["stats"]["type"] == "categorical"


def test_p7_earlier_labels_are_known_after_the_horizon_and_the_delay(folder, tmp_path):
    (tmp_path / "schema.toml").write_text(predict())
    headwater.prepare(folder, tmp_path / "schema.toml", tmp_path / "db")
    metadata = headwater.Store(tmp_path / "db").metadata()
    assert metadata["tables"][-1]["name"] == "question labels"
    (observed_at,) = [
        column["index"]
        for column in metadata["tables"][-1]["columns"]
        if column["stats"]["type"] == "timestamp"
    ]
    ages = set()
    with headwater.Sampler(tmp_path / "db", default_batch_size=16, compact=True) as sampler:
        for batch in sampler.evaluate("test"):
            seed, cell = (batch["column_ids"] == observed_at).nonzero()
            known = batch["row_time"][seed, batch["seq_row_ids"][seed, cell]]
            assert (known <= batch["obs_time"][seed]).all()
            ages |= set((known - batch["timestamp_us"][seed, cell]).tolist())
    # The horizon of 20 days, and a day until a line is known.
    assert ages == {21 * 86_400_000_000}


def test_the_sql_of_a_declared_task_makes_the_same_store(folder, tmp_path):
    schema = tmp_path / "schema.toml"
    schema.write_text(predict(active_within="60 days"))
    report = headwater.prepare(folder, schema, tmp_path / "declared")
    command = [sys.executable, "-m", "headwater", "sql", schema, "--task", "question"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    sql = run.stdout.strip().removesuffix(";")
    by_hand = f"""
[[task]]
name = "question"
[task.derived]
anchor = "users"
sql = '''{sql}'''
key = "key_1"
time = "observed_at"
target = "target"
type = "numerical"
split = "split"
horizon = "21 days"
"""
    schema.write_text(SCHEMA + by_hand)
    assert headwater.prepare(folder, schema, tmp_path / "by hand")["root"] == report["root"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"anchor": "user"}, 'anchor: there is no table "user"; did you mean "users"'),
        ({"of": "users"}, 'expected a reference from "users" to the anchor "users", found none'),
        ({"what": "median"}, "what: expected one of `count`, .*, found `median`; did you mean"),
        ({"what": "sum"}, 'what = "sum" needs a column'),
        ({"what": "sum", "column": "kind"},
         'column "kind": expected a numerical column for what = "sum", found categorical'),
        ({"what": "sum", "column": "prise"}, 'no column "prise" in columns; did you mean "price"'),
        ({"column": "price"}, 'what = "count" is about rows and takes no column'),
        ({"horizon": "0 days"}, "horizon: expected a time longer than 0, found 0"),
        ({"horizon": "1 month"}, "a month has no fixed length"),
        ({"train_until": "July"}, "train_until: expected a time such as"),
        ({"val_until": "2022-07-05"}, "val_until at least one horizon .20 days. after train_until"),
        ({"where": "prise > 1"},
         '(?s)task "question": DuckDB rejects the query: .*; check where = "prise > 1": a cond'),
        ({"where": "random() > .5"}, "result can change from run to run"),
        ({"train_until": None}, "the field `train_until` is missing"),
        ({"where": " "}, "where: expected a condition of SQL, found none"),
        ({"reference": "buy"}, 'expected a reference from "lines" to the anchor "users"'),
    ],
)  # fmt: skip
def test_a_question_that_cannot_be_asked_is_refused(changes, message, folder, tmp_path):
    (tmp_path / "schema.toml").write_text(predict(**changes))
    with pytest.raises(headwater.SchemaError, match=message):
        headwater.prepare(folder, tmp_path / "schema.toml", tmp_path / "db")
    assert not (tmp_path / "db").exists()


@pytest.mark.parametrize(
    ("until", "message"),
    [
        (
            "1990-01-01 1991-01-01",
            'train_until after the first answers, found "1990-01-01", by which',
        ),
        (
            "2022-01-05 2022-03-01",
            "the first seed is observed at 2022-.*choose a later train_until",
        ),
    ],
)
def test_a_train_until_before_the_data_is_refused(until, message, folder, tmp_path):
    train_until, val_until = until.split()
    (tmp_path / "schema.toml").write_text(predict(train_until=train_until, val_until=val_until))
    with pytest.raises(headwater.DataError, match=message):
        headwater.prepare(folder, tmp_path / "schema.toml", tmp_path / "db")


def test_a_train_until_after_the_data_is_told(folder, tmp_path):
    (tmp_path / "schema.toml").write_text(predict(train_until="2050-01-01", val_until="2051-01-01"))
    report = headwater.prepare(folder, tmp_path / "schema.toml", tmp_path / "db")
    told = 'train_until = "2050-01-01" leaves a split without seeds: they are observed from 2022-'
    assert any(told in remark for remark in report["remarks"]), report["remarks"]


def with_sentinel(tables, path, *days):
    """Writes the tables with some buys, and a line of each, on other days."""
    tables = {
        name: {key: list(rows) for key, rows in table.items()} for name, table in tables.items()
    }
    for day in days:
        buy = len(tables["buys"]["id"])
        for key, value in zip(tables["buys"], (buy, 1, day, True), strict=True):
            tables["buys"][key].append(value)
        line = len(tables["buy lines"]["id"])
        for key, value in zip(tables["buy lines"], (line, buy, 1, 2.5, "z"), strict=True):
            tables["buy lines"][key].append(value)
    return write_csv(path, tables)


@pytest.mark.parametrize("day", [datetime.datetime(9999, 12, 31), datetime.datetime(1, 1, 1)])
def test_times_that_stand_for_none_are_refused(day, tables, tmp_path):
    """Otherwise each user would have a seed for each 20 days of thousands of years."""
    source = with_sentinel(tables, tmp_path / "source", day, day)
    at = day.isoformat(" ").zfill(19)
    found = f"that lie together, found 2 of .02 rows at {at}, far from the others"
    inherited = f'table "lines": expected rows with times .."at" of "buys". {found}'
    own = f'table "buys": expected rows with times .."at". {found}'
    for question, message in [({}, inherited), ({"of": "buys"}, own)]:
        (tmp_path / "schema.toml").write_text(predict(**question))
        with pytest.raises(headwater.DataError, match=message.replace("..", "[(]")) as raised:
            headwater.prepare(source, tmp_path / "schema.toml", tmp_path / "db")
        assert "DuckDB" not in str(raised.value)
        assert ", far from the others, which lie from 2022-01-01 00:00:00 to 2022-12-" in str(
            raised.value
        )
    # The remedy of the message is right as it is.
    condition = str(raised.value).partition("which rows count: ")[2]
    assert condition.startswith('"at" BETWEEN TIMESTAMP')
    clean = write_csv(tmp_path / "clean", tables)
    found = []
    for number, folder in enumerate([source, clean]):
        where = f'\nwhere = """{condition}"""\n'
        (tmp_path / "schema.toml").write_text(predict(of="buys") + where)
        headwater.prepare(folder, tmp_path / "schema.toml", tmp_path / str(number))
        (task,) = headwater.Store(tmp_path / str(number)).metadata()["tasks"]
        found.append((task["seed_count"], task["target"]["derived"]["column"]["stats"]))
    assert found[0] == found[1]


def test_p1_the_printed_sql_refuses_times_that_stand_for_none(tables, tmp_path):
    (tmp_path / "schema.toml").write_text(predict(of="buys"))
    command = [sys.executable, "-m", "headwater", "sql", tmp_path / "schema.toml"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    sql = run.stdout.strip().removesuffix(";")
    by_hand = f"""
[[task]]
name = "question"
[task.derived]
anchor = "users"
sql = '''{sql}'''
key = "key_1"
time = "observed_at"
target = "target"
type = "numerical"
split = "split"
"""
    (tmp_path / "schema.toml").write_text(SCHEMA + by_hand)
    source = with_sentinel(tables, tmp_path / "source", datetime.datetime(9999, 12, 31))
    with pytest.raises(headwater.DataError, match="found 1 of 401 rows at 9999-12-31"):
        headwater.prepare(source, tmp_path / "schema.toml", tmp_path / "db")


def test_a_gap_of_some_years_is_no_fault(tables, tmp_path):
    source = with_sentinel(tables, tmp_path / "source", datetime.datetime(2030, 1, 1))
    (tmp_path / "schema.toml").write_text(predict(of="buys"))
    headwater.prepare(source, tmp_path / "schema.toml", tmp_path / "db")


def test_a_column_of_a_count_is_refused_before_its_times(folder, tmp_path):
    known = 'price = { type = "numerical", known = { at = "kind" } }'
    schema = predict(column="price").replace('price = "numerical"', known)
    schema = schema.replace('kind = "categorical"', 'kind = "ignored"')
    (tmp_path / "schema.toml").write_text(schema)
    with pytest.raises(headwater.SchemaError, match='what = "count" is about rows and takes no'):
        headwater.prepare(folder, tmp_path / "schema.toml", tmp_path / "db")


def test_a_question_without_seeds_is_refused(folder, tmp_path):
    (tmp_path / "schema.toml").write_text(predict(val_until="2092-01-01", horizon="9000 days"))
    with pytest.raises(headwater.DataError, match='task "question": the task has no seed'):
        headwater.prepare(folder, tmp_path / "schema.toml", tmp_path / "db")

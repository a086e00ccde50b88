"""Questions about links: pairs are those of a plain program, and a context has only its own."""

import datetime
import hashlib
import json
import random

import numpy as np
import pytest

import headwater
from shop import write_csv

DAY = datetime.timedelta(days=1)
START = datetime.datetime(2022, 1, 1)
TRAIN_UNTIL, VAL_UNTIL = datetime.datetime(2022, 7, 1), datetime.datetime(2022, 9, 9)
EPOCH = datetime.datetime(1970, 1, 1)

SCHEMA = """
database = "shop"
[limits]
unresolved_share = 0.2

[[table]]
name = "users"
key = "id"
time = { column = "joined" }
columns = { id = "identifier", joined = "timestamp" }

[[table]]
name = "shelves"
key = "id"
time = { column = "built" }
columns = { id = "identifier", built = "timestamp" }

[[table]]
name = "goods"
key = ["kind", "number"]
time = { through = "shelf", delay = "2 days" }
references = [{ columns = "shelf", to = "shelves" }]
columns = { kind = "categorical", number = "identifier", shelf = "identifier", size = "numerical" }

[[table]]
name = "buys"
time = { column = "at", delay = "1 day" }
columns = { user = "ignored", by = "ignored", kind = "ignored", number = "ignored", at = "timestamp", paid = "boolean" }
[[table.references]]
columns = "user"
to = "users"
[[table.references]]
columns = ["number", "kind"]
to = "goods"
to_columns = ["number", "kind"]
"""  # noqa: E501

QUESTION = {
    "anchor": "users", "what": "link", "of": "buys", "to": "goods", "horizon": "20 days",
    "train_until": "2022-07-01", "val_until": "2022-09-09",
}  # fmt: skip


def question(schema=SCHEMA, name="next", **changes):
    """Returns a schema with a question about links."""
    fields = QUESTION | changes
    lines = [f"{key} = {json.dumps(of)}" for key, of in fields.items() if of is not None]
    return f'{schema}\n[[task]]\nname = "{name}"\n[task.predict]\n' + "\n".join(lines)


def some_tables(seed, goods=40):
    """Returns the tables of a small shop."""
    chance = random.Random(seed)
    day = lambda count: START + chance.randrange(count) * DAY  # noqa: E731
    shelves = [(f"s{n}", day(250) if n else None) for n in range(6)]
    # A shelf that is missing, and none at all: known never, and always.
    goods = [
        (chance.choice("ab|"), n, chance.choice(["s9", None, *(s for s, _ in shelves)]), n / 2)
        for n in range(goods)
    ]
    users = [(f"u{n}", day(200)) for n in range(20)]
    buys = []
    for _ in range(700):
        kind, number, *_ = chance.choice(goods)
        buys.append(
            (
                f"u{chance.randrange(20)}", "x", kind,
                chance.choice([number] * 9 + [None, 999]), day(365), chance.random() < 0.7,
            )
        )  # fmt: skip
    columns = {
        "users": ("id", "joined"), "shelves": ("id", "built"),
        "goods": ("kind", "number", "shelf", "size"),
        "buys": ("user", "by", "kind", "number", "at", "paid"),
    }  # fmt: skip
    rows = {"users": users, "shelves": shelves, "goods": goods, "buys": buys}
    return {
        name: dict(zip(columns[name], map(list, zip(*rows[name], strict=True)), strict=True))
        for name in rows
    }


def rows_of(table):
    return list(zip(*table.values(), strict=True))


def micros(time):
    return (time - EPOCH) // datetime.timedelta(microseconds=1)


def expected(tables, *, negatives=20, every=20, horizon=20, active=None, counts=lambda _: True):
    """Returns the pairs of a plain program: {(split, user, at, kind, number): label}.

    A good is known two days after its shelf, a buy a day after its time.
    """
    built = dict(rows_of(tables["shelves"]))
    never = object()
    since = {}
    for kind, number, shelf, _ in rows_of(tables["goods"]):
        time = None if shelf is None else built.get(shelf, never)
        if time is not never:
            since[kind, str(number)] = datetime.datetime.min if time is None else time + 2 * DAY
    places = sorted(since, key=lambda good: (since[good], good))
    buys = rows_of(tables["buys"])
    first, last = (of(buy[4] for buy in buys) for of in (min, max))
    found = {}
    for number in range(-400, 400):
        at = TRAIN_UNTIL + number * every * DAY
        split = "train" if at < TRAIN_UNTIL else "val" if at < VAL_UNTIL else "test"
        end = {"train": TRAIN_UNTIL, "val": VAL_UNTIL, "test": last + DAY}[split]
        if at < first or at + (horizon + 1) * DAY > end:
            continue
        known = [good for good in places if since[good] <= at]
        for user, joined in rows_of(tables["users"]):
            own = [buy for buy in buys if buy[0] == user]
            if joined > at or (
                active and not any(at - active * DAY < buy[4] + DAY <= at for buy in own)
            ):
                continue
            inside = [buy for buy in own if at < buy[4] <= at + horizon * DAY and counts(buy)]
            linked = {(buy[2], str(buy[3])) for buy in inside} & set(known)
            if not linked:
                continue
            for good in linked:
                found[split, user, at, *good] = True
            for place in drawn(user, at, known, linked, negatives):
                found[split, user, at, *known[place]] = False
    return found


def drawn(user, at, known, linked, negatives):
    """Returns the places of the goods that a plain program draws."""

    def draw(number):
        text = f"{user}|{micros(at)}|{number}"
        return int(hashlib.md5(text.encode()).hexdigest()[:15], 16)

    if len(known) <= 8 * (len(linked) + negatives):
        order = sorted(range(len(known)), key=lambda place: (draw(place), place))
    else:
        order = dict.fromkeys(draw(n) % len(known) for n in range(2 * negatives + 16))
    return [place for place in order if known[place] not in linked][:negatives]


def labels_of(path, name="next"):
    """Returns the label and the split of each pair of a store."""
    labels, splits = {}, {}
    with headwater.Sampler(
        path, tasks=[name], default_batch_size=64, default_sequence_length=8
    ) as sampler:
        for split in ("train", "val", "test"):
            for batch in sampler.evaluate(split):
                values = batch["bool_values"][range(64), batch["target_pos"]]
                for row, value, weight in zip(
                    batch["seed_row"], values, batch["seq_weight"], strict=True
                ):
                    if weight:
                        assert int(row) not in labels
                        labels[int(row)], splits[int(row)] = bool(value), split
    return labels, splits


def pairs_of(path, name="next"):
    """Returns the pairs of a store as `expected` does."""
    store = headwater.Store(path)
    pairs = store.pairs(name)
    labels, splits = labels_of(path, name)
    assert sorted(labels) == list(range(len(pairs["anchor"])))
    keys = {table: [store.row(table, index=n)["key"] for n in range(store.tables[table].row_count)]
            for table in ("users", "goods")}  # fmt: skip
    found = {}
    for row in range(len(pairs["anchor"])):
        user = keys["users"][pairs["anchor"][row]]
        kind, number = keys["goods"][pairs["candidate"][row]].rsplit("|", 1)
        at = EPOCH + datetime.timedelta(microseconds=int(pairs["observed"][row]))
        found[splits[row], user, at, kind.replace("\\|", "|"), number] = labels[row]
    return found


def prepare(tables, schema, folder):
    folder.mkdir(exist_ok=True)
    (folder / "schema.toml").write_text(schema)
    source = write_csv(folder / "source", tables)
    return headwater.prepare(source, folder / "schema.toml", folder / "db")


@pytest.mark.parametrize(
    ("seed", "goods", "changes", "options"),
    [
        (1, 40, {}, {}),
        (2, 300, {"negatives": 5}, {"negatives": 5}),
        (3, 300, {"negatives": 3, "every": "13 days", "horizon": "33 days"},
         {"negatives": 3, "every": 13, "horizon": 33}),
        (4, 60, {"where": "paid", "active_within": "40 days"},
         {"counts": lambda buy: buy[5], "active": 40}),
        (5, 30, {"negatives": 1000, "reference": "user", "to_reference": "number+kind"},
         {"negatives": 1000}),
        (6, 120, {"negatives": 1}, {"negatives": 1}),
    ],
)  # fmt: skip
def test_pairs_are_those_of_a_plain_program(seed, goods, changes, options, tmp_path):
    tables = some_tables(seed, goods)
    prepare(tables, question(**changes), tmp_path / "one")
    wanted = expected(tables, **options)
    assert {key[0] for key in wanted} == {"train", "val", "test"}
    assert set(wanted.values()) == {True, False}
    assert pairs_of(tmp_path / "one/db") == wanted
    # In another order of the rows.
    chance = random.Random(seed)
    shuffled = {}
    for name, table in tables.items():
        rows = rows_of(table)
        chance.shuffle(rows)
        shuffled[name] = dict(zip(table, map(list, zip(*rows, strict=True)), strict=True))
    prepare(shuffled, question(**changes), tmp_path / "two")
    assert pairs_of(tmp_path / "two/db") == wanted


def test_each_row_is_drawn_about_as_often(tmp_path):
    """Of the goods that are always known, by both ways of drawing."""
    for number, (goods, negatives) in enumerate([(30, 4), (200, 4)]):
        tables = some_tables(9, goods)
        tables["goods"]["shelf"] = [None] * goods
        found = expected(tables, negatives=negatives, every=1, horizon=3)
        counts = np.zeros(goods)
        for (*_, good), label in found.items():
            counts[int(good)] += not label
        mean = counts.mean()
        assert np.abs(counts - mean).max() < 5 * np.sqrt(mean)
        question_of = question(negatives=negatives, every="1 day", horizon="3 days")
        prepare(tables, question_of, tmp_path / str(number))
        assert pairs_of(tmp_path / str(number) / "db") == found


AGGREGATE = """
[[aggregate]]
table = "buys"
reference = "user"
windows = ["30 days", "ever"]
"""


def batches(path, name, seed=7, aggregates="all", **settings):
    """Returns the tensors of each seed of a task, by its number and the key of its pair."""
    store = headwater.Store(path)
    found = {}
    with headwater.Sampler(
        path, tasks=[name], seed=seed, default_batch_size=16, default_sequence_length=96,
        max_rows=32, compact=True, aggregates=aggregates, **settings,
    ) as sampler:  # fmt: skip
        table = sampler.tasks[0].partition("/")[2]
        for split in ("train", "val", "test"):
            for batch in sampler.evaluate(split):
                for place in range(16):
                    if batch["seq_weight"][place]:
                        row = int(batch["seed_row"][place])
                        found[row, store.row(table, index=row)["key"]] = {
                            tensor: values[place].copy()
                            for tensor, values in batch.items()
                            if len(values) == 16 and tensor != "seed_row"
                        }
    return found


@pytest.mark.parametrize("walk", ["priority", "breadth"])
@pytest.mark.parametrize(
    ("where", "fewest"),
    [
        # Without the pairs of half of the users, also those of the same goods.
        ("\"user as a key\" < 'u5'", 1000),
        # With other pairs and labels of half of the users.
        ("paid OR \"user as a key\" < 'u5'", 1000),
        # With another label of some candidates of each group.
        ("\"number as a key\" NOT IN ('3', '8')", 30),
    ],
)
def test_p7_a_context_does_not_depend_on_other_pairs(where, fewest, walk, tmp_path):
    """Byte for byte, for each pair with the same number, on which the words of a walk depend."""
    tables = some_tables(1)
    prepare(tables, question(SCHEMA + AGGREGATE, negatives=1000), tmp_path / "all")
    prepare(tables, question(SCHEMA + AGGREGATE, negatives=1000, where=where), tmp_path / "other")
    every, other = (batches(tmp_path / name / "db", "next", walk=walk) for name in ("all", "other"))
    shared = every.keys() & other.keys()
    assert len(every) > len(other) > len(shared) >= fewest or len(other) == len(shared) >= fewest
    for pair in shared:
        one, two = every[pair], other[pair]
        for tensor, values in one.items():
            if tensor == "bool_values":
                # All but the label, which may be another one.
                values[one["target_pos"]] = two[tensor][two["target_pos"]] = 0
            assert values.tobytes() == two[tensor].tobytes(), (pair, tensor)


def test_p7_a_pair_is_in_no_context_but_its_own(tmp_path):
    prepare(some_tables(1), question(SCHEMA + AGGREGATE), tmp_path / "one")
    metadata = headwater.Store(tmp_path / "one/db").metadata()
    pairs = next(n for n, table in enumerate(metadata["tables"]) if table["name"] == "next")
    own = {n for n, relation in enumerate(metadata["relations"]) if relation["child"] == pairs}
    assert len(own) == 2
    assert all(relation["parent"] != pairs for relation in metadata["relations"])
    assert all(metadata["relations"][relation]["edge_count"] == 0 for relation in own)
    for of_seed in batches(tmp_path / "one/db", "next").values():
        rows = slice(1, int(of_seed["num_rows"]))
        reached = of_seed["row_relation"][rows], of_seed["row_direction"][rows]
        # Only as parents of the seed: the user and the good, which are known then.
        assert [way for by, way in zip(*reached, strict=True) if by in own] == [1, 1]


def test_p7_other_tasks_see_no_pairs(tmp_path):
    tables = some_tables(1)
    cell = '\n[[task]]\nname = "paid"\ncell = { table = "buys", column = "paid" }\n'
    # Of all rows in both: the question records a split, and would end the statistics with it.
    schema = 'statistics_until = "2100-01-01"\n' + SCHEMA + cell
    prepare(tables, schema, tmp_path / "without")
    prepare(tables, question(schema), tmp_path / "with")
    found = []
    for name in ("without", "with"):
        with headwater.Sampler(
            tmp_path / name / "db", tasks=["paid"], seed=3, default_batch_size=32,
            default_sequence_length=64, compact=True,
        ) as sampler:  # fmt: skip
            found.append(
                [{t: v.copy() for t, v in batch.items()} for batch in sampler.evaluate("train")]
            )
    for one, two in zip(*found, strict=True):
        for tensor in one:
            # The rows of a reference are as many as any table has references.
            assert np.array_equal(one[tensor], two[tensor]), tensor


def test_the_history_of_pairs_is_that_of_a_plain_program(tmp_path):
    tables = some_tables(2, 60)
    prepare(tables, question(), tmp_path / "one")
    store = headwater.Store(tmp_path / "one/db")
    buys = rows_of(tables["buys"])
    users = tables["users"]["id"]
    goods = list(zip(tables["goods"]["kind"], tables["goods"]["number"], strict=True))
    for until in (None, micros(START + 200 * DAY)):
        pairs = store.pairs("next", until)
        for row in range(0, len(pairs["anchor"]), 7):
            user, good = users[pairs["anchor"][row]], goods[pairs["candidate"][row]]
            observed = min(int(pairs["observed"][row]), until or 2**62)
            known = [buy for buy in buys if micros(buy[4] + DAY) <= observed and buy[2:4] == good]
            assert pairs["popularity"][row] == len(known)
            own = [micros(buy[4] + DAY) for buy in known if buy[0] == user]
            assert pairs["last"][row] == (max(own) if own else -(2**63))
    assert (pairs["last"] != -(2**63)).any()


def test_links_within_one_table_and_names_that_clash(tmp_path):
    """Who pays whom; both references share a column."""
    chance = random.Random(5)
    payments = [
        ("eu", f"u{chance.randrange(12)}", f"u{chance.randrange(12)}", START + n * DAY)
        for n in range(360)
    ]
    tables = {
        "users": {"region": ["eu"] * 12, "id": [f"u{n}" for n in range(12)], "x": list(range(12))},
        "payments": dict(
            zip(("region", "payer", "payee", "at"), map(list, zip(*payments, strict=True)),
                strict=True)
        ),
    }  # fmt: skip
    schema = """
database = "bank"
[[table]]
name = "users"
key = ["region", "id"]
columns = { region = "categorical", id = "identifier", x = "numerical" }
[[table]]
name = "payments"
time = { column = "at" }
columns = { region = "ignored", payer = "ignored", payee = "ignored", at = "timestamp" }
references = [{ columns = ["region", "payer"], to = "users" }, { columns = ["region", "payee"], to = "users" }]
"""  # noqa: E501
    changes = {"of": "payments", "to": "users", "reference": "region+payer", "negatives": 3}
    prepare(tables, question(schema, **changes), tmp_path / "one")
    store = headwater.Store(tmp_path / "one/db")
    table = store.table("next")
    metadata = store.metadata()
    assert next(t["key"] for t in metadata["tables"] if t["name"] == "next") == [
        "region", "payer", "observed_at", "users region", "payee",
    ]  # fmt: skip
    labels, _ = labels_of(tmp_path / "one/db")
    pairs = store.pairs("next")
    assert table.row_count == len(labels)
    for row, label in labels.items():
        at = EPOCH + datetime.timedelta(microseconds=int(pairs["observed"][row]))
        inside = [
            payment for payment in payments
            if at < payment[3] <= at + 20 * DAY and payment[1] == f"u{pairs['anchor'][row]}"
        ]  # fmt: skip
        assert label == any(payment[2] == f"u{pairs['candidate'][row]}" for payment in inside)
        # Nobody is drawn as a candidate of his own.
        assert label or pairs["anchor"][row] != pairs["candidate"][row]
    with pytest.raises(headwater.SchemaError, match='choose one with reference = "...": "region'):
        prepare(tables, question(schema, **changes | {"reference": None}), tmp_path / "two")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"to": None}, 'what = "link" needs the table of the rows that are linked to; add to ='),
        ({"to": "good"}, 'predict: to: there is no table "good"; did you mean "goods"'),
        ({"to": "buys"}, 'to: table "buys" has no key'),
        ({"to": "users"}, 'from "buys" to the table "users" of the candidates, beside "user" to '
                          "the anchor, found none"),
        ({"to_reference": "user"}, 'to the table "goods" of the candidates'),
        ({"to_reference": "number"}, 'to_reference: there is no reference "number"; expected one'),
        ({"negatives": 0}, "negatives: expected 1 to 4294967295 rows to draw, found 0"),
        ({"negatives": -3}, "negatives: expected 1 to 4294967295 rows to draw, found -3"),
        ({"column": "paid"}, 'what = "link" is about rows and takes no column; remove column'),
        ({"what": "count"}, 'what = "count" takes no to; remove it, or set what = "link"'),
        ({"what": "count", "to": None, "negatives": 3}, 'what = "count" takes no negatives'),
        ({"name": "users"}, 'the task\'s pairs become table "users", and there is a table "users"'),
        ({"scale": "log"}, "expected type numerical for a target with a scale, found boolean"),
    ],
)  # fmt: skip
def test_a_question_that_cannot_be_asked_is_refused(changes, message, tmp_path):
    with pytest.raises(headwater.SchemaError, match=message):
        prepare(some_tables(1), question(**changes), tmp_path / "one")
    assert not (tmp_path / "one/db").exists()


def test_several_references_to_the_candidates_are_told_apart(tmp_path):
    schema = SCHEMA + '[[table.references]]\ncolumns = ["kind", "number"]\nto = "goods"\n'
    with pytest.raises(headwater.SchemaError, match='choose one with to_reference = "...": "numb'):
        prepare(some_tables(1), question(schema), tmp_path / "one")
    prepare(some_tables(1), question(schema, to_reference="kind+number"), tmp_path / "two")
    assert pairs_of(tmp_path / "two/db") == expected(some_tables(1))


@pytest.mark.parametrize(
    "more",
    [
        '[[aggregate]]\ntable = "next"\nreference = "user"\n',
        '[[summary]]\ntable = "next"\nperiod = "month"\n',
    ],
)
def test_p7_pairs_are_neither_aggregated_nor_summarised(more, tmp_path):
    with pytest.raises(headwater.SchemaError, match='found "next", whose rows are the pairs of'):
        prepare(some_tables(1), question(SCHEMA + more), tmp_path / "one")


def test_pairs_of_another_task_are_refused(tmp_path):
    cell = '\n[[task]]\nname = "paid"\ncell = { table = "buys", column = "paid" }\n'
    prepare(some_tables(1), SCHEMA + cell, tmp_path / "one")
    with pytest.raises(headwater.InvalidArgument, match='expected a task with what = "link"'):
        headwater.Store(tmp_path / "one/db").pairs("paid")


def test_an_audit_and_a_drawing_read_the_pairs(tmp_path):
    prepare(some_tables(1), question(), tmp_path / "one")
    report = headwater.audit(tmp_path / "one/db")
    assert [task["task"] for task in report["tasks"]] == ["next"]
    assert not report["findings"], report["findings"]
    with headwater.Sampler(tmp_path / "one/db", default_batch_size=4) as sampler:
        text = str(sampler.draw("next", 0))
    assert "users" in text
    assert "goods" in text


LINES = """
[[table]]
name = "lines"
source = "buy lines"
columns = { buy = "identifier", item = "identifier" }
references = [{ columns = "buy", to = "orders" }, { columns = "item", to = "items" }]
time = { through = "buy" }

[[table]]
name = "items"
key = "id"
columns = { id = "identifier" }

[[table]]
name = "orders"
key = "id"
columns = { id = "identifier", user = "identifier", at = "timestamp" }
references = [{ columns = "user", to = "users" }]
time = { column = "at" }
"""


@pytest.mark.parametrize("of", ["orders", "lines"])
def test_a_link_through_a_second_table_needs_the_copied_key(of, tmp_path):
    message = (
        'the rows of "lines" refer to "users" by way of "orders" alone: copy the key "user" into '
        "them, in a view of the source or in a table made from "
        'SELECT "buy lines".*, "orders"."user" FROM "buy lines" LEFT JOIN "orders" '
        'ON "buy lines"."buy" = "orders"."id", then set of = "lines"'
    )
    schema = question(SCHEMA + LINES, of=of, to="items")
    with pytest.raises(headwater.SchemaError) as raised:
        prepare(some_tables(1), schema, tmp_path / "one")
    assert message in str(raised.value)


def test_the_histories_of_a_condition_are_told(tmp_path):
    report = prepare(some_tables(1), question(where="paid"), tmp_path / "one")
    told = 'are baselines, count all rows of "buys", also those that where leaves out'
    assert sum(told in remark for remark in report["remarks"]) == 1, report["remarks"]
    report = prepare(some_tables(1), question(), tmp_path / "two")
    assert not any("leaves out" in remark for remark in report["remarks"])

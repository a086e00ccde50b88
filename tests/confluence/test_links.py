"""Tasks that ask which rows will be linked: metrics against plain loops, baselines, a training."""

import csv
import datetime
import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import confluence
import headwater
from confluence import baselines, config, evaluation, links, widths
from confluence.links import Pairs
from confluence.results import Results
from runs import confluence as command
from runs import sets

# Orbax's threads warn of options that are intended; the command silences them.
pytestmark = pytest.mark.filterwarnings("ignore")


def precision_of(labels):
    """Returns the mean precision at the places of true labels."""
    found = [sum(labels[: place + 1]) / (place + 1) for place, of in enumerate(labels) if of]
    return sum(found) / len(found)


def in_every_order(values, labels):
    """Yields the labels by value, the highest first, in every order of equal values."""
    for order in itertools.permutations(range(len(values))):
        if all(values[a] >= values[b] for a, b in itertools.pairwise(order)):
            yield [labels[place] for place in order]


def expected(groups):
    """Returns the metrics of a plain program, each the mean over all orders of equal values."""
    found = []
    for values, labels in groups:
        if any(labels):
            orders = list(in_every_order(values, labels))
            found.append(
                [
                    np.mean([precision_of(order) for order in orders]),
                    *(np.mean([any(order[:top]) for order in orders]) for top in (1, 5, 10)),
                ]
            )
    return np.mean(found, axis=0)


GROUPS = st.lists(
    st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=6), min_size=1
).filter(lambda groups: any(label for group in groups for _, label in group))


@settings(deadline=None, max_examples=60)
@given(GROUPS, st.randoms())
def test_metrics_are_means_over_all_orders_of_equal_values(groups, chance):
    seeds = [(number, *seed) for number, group in enumerate(groups) for seed in group]
    rows = list(range(len(seeds)))
    chance.shuffle(rows)
    numbers, values, labels = (np.array(of) for of in zip(*seeds, strict=True))
    pairs = Pairs(numbers.astype(np.uint32), numbers, 20)
    rows = np.array(rows, np.uint32)
    found = links.score(pairs, rows, values[rows].astype(float), labels[rows].astype(float))
    wanted = expected([zip(*group, strict=True) for group in groups])
    assert list(found) == ["map", "hit@1", "hit@5", "hit@10", "auroc"]
    assert list(found.values())[:4] == pytest.approx(wanted)


def test_metrics_of_a_case_by_hand():
    # Two groups: true candidates at the places 1 and 3 of four, and at 6 of six.
    values = np.array([0.9, 0.8, 0.7, 0.6, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
    labels = np.array([1, 0, 1, 0, 0, 0, 0, 0, 0, 1.0])
    pairs = Pairs(np.zeros(10, np.uint32), np.array([0] * 4 + [1] * 6), 3)
    found = links.score(pairs, np.arange(10, dtype=np.uint32), values, labels)
    assert found["map"] == pytest.approx(((1 + 2 / 3) / 2 + 1 / 6) / 2)
    assert [found[f"hit@{top}"] for top in (1, 5, 10)] == [0.5, 0.5, 1.0]


def test_one_value_for_all_is_chance():
    """Of one true candidate among 21 the place is any; labels and rows may have any order."""
    count = 300
    labels = np.tile(np.arange(21) == 0, count).astype(float)
    groups = np.repeat(np.arange(count), 21)
    pairs = Pairs(groups.astype(np.uint32), groups, 20)
    rows = np.arange(21 * count, dtype=np.uint32)
    found = links.score(pairs, rows, np.zeros(len(rows)), labels)
    assert found["map"] == pytest.approx(np.mean([1 / place for place in range(1, 22)]))
    assert found["hit@5"] == pytest.approx(5 / 21)
    assert found["auroc"] == 0.5


def test_the_interval_is_over_anchors():
    """An anchor with many groups is one entity."""
    chance = np.random.default_rng(0)
    anchors = np.repeat(np.arange(60), 5)
    groups = np.repeat(np.arange(300), 4)
    pairs = Pairs(anchors[groups].astype(np.uint32), groups, 3)
    # All groups of an anchor are ranked alike.
    first = chance.random(60) < 0.5
    labels = np.tile([1.0, 0, 0, 0], 300)
    values = np.where(labels > 0, np.where(first[pairs.anchors], 2.0, 0.5), 1.0)
    rows = np.arange(1200, dtype=np.uint32)
    low, high = links.interval(pairs, rows, values, labels)
    middle = links.score(pairs, rows, values, labels)["map"]
    assert low < middle < high
    # The standard error of 60 anchors of which half are ranked first, half fourth of four.
    assert high - low == pytest.approx(2 * 1.96 * 0.375 / 60**0.5, rel=0.25)


SCHEMA = """
database = "shop"

[[table]]
name = "customers"
key = "id"
columns = { id = "ignored", taste = "categorical" }

[[table]]
name = "products"
key = "id"
columns = { id = "ignored", flavour = "categorical" }

[[table]]
name = "orders"
time = { column = "at" }
columns = { customer = "ignored", product = "ignored", at = "timestamp" }
references = [{ columns = "customer", to = "customers" }, { columns = "product", to = "products" }]

[[task]]
name = "next product"
[task.predict]
anchor = "customers"
what = "link"
of = "orders"
to = "products"
horizon = "30 days"
negatives = 9
train_until = "2022-08-01"
val_until = "2022-10-01"
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A shop whose customers buy products of their own taste alone, most of them once."""
    folder = tmp_path_factory.mktemp("links")
    chance, flavours = random.Random(1), "abcde"
    (folder / "data").mkdir()

    def write(name, header, rows):
        with (folder / "data" / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([header, *rows])

    tastes = [chance.choice(flavours) for _ in range(120)]
    write("customers", ("id", "taste"), enumerate(tastes))
    write("products", ("id", "flavour"), ((n, flavours[n % 5]) for n in range(200)))
    start = datetime.date(2022, 1, 1)
    orders = (
        (customer, 5 * chance.randrange(40) + flavours.index(tastes[customer]),
         start + datetime.timedelta(chance.randrange(365)))
        for customer in range(120) for _ in range(12)
    )  # fmt: skip
    write("orders", ("customer", "product", "at"), orders)
    (folder / "schema.toml").write_text(SCHEMA)
    headwater.prepare(folder / "data", folder / "schema.toml", folder / "db", dimension=32)
    return folder / "db"


def test_baselines_know_popularity_and_the_last_links(shop):
    stores = [headwater.Store(shop)]
    (task,) = evaluation.find_tasks(["shop/next product"], stores)
    assert (task.leading, task.pairs.drawn) == ("map", 9)
    settings_of = config.load(None, [f"data.stores={shop}"])
    found = baselines.of_task(settings_of, stores, task, ("val", "test"), with_boosting=True)
    assert found.boosting == "off"
    assert list(found.metrics["test"]) == ["random", "popularity", "last linked"]
    assert found.metrics["test"]["random"]["auroc"] == 0.5
    # Nothing is known before the first order, so all candidates are equal.
    early = config.load(None, [f"data.stores={shop}", "data.visible_until=2021-01-01"])
    blind = baselines.of_task(early, stores, task, ("test",), with_boosting=False)
    of_blind = blind.metrics["test"]
    assert of_blind["popularity"] == of_blind["last linked"] == of_blind["random"]
    shown = command("baselines", shop, "--task", "next product")
    assert shown.returncode == 0, shown.stderr
    assert "last linked" in shown.stdout
    assert "test map" in shown.stdout


def test_a_group_has_the_pairs_of_one_anchor_row_and_one_time():
    class Store:
        def pairs(self, name):
            assert name == "next"
            return {"anchor": np.array([2, 1, 2, 1, 2]), "observed": np.array([5, 5, 5, 7, 6])}

    found = links.read(Store(), "next", 9)
    assert found.groups.tolist() == [2, 0, 2, 1, 3]
    assert (found.anchors.tolist(), found.drawn) == ([2, 1, 2, 1, 2], 9)


def test_last_linked_ranks_by_time_and_then_by_popularity():
    class Store:
        def pairs(self, name, until):
            assert (name, until) == ("next", 10)
            return {
                "popularity": np.array([9, 1, 2, 5, 3], np.uint32),
                "last": np.array([-(2**63), 7, -(2**63), 8, 7]),
            }

    found = links.baselines(Store(), "next", np.array([3, 2, 1, 0], np.uint32), 10)
    assert list(np.argsort(-found["last linked"])) == [0, 2, 3, 1]
    assert found["popularity"].tolist() == [5, 2, 1, 9]
    assert found["random"].tolist() == [0, 0, 0, 0]


def test_the_history_of_a_pair_is_that_of_its_customer(shop):
    settings_of = config.load(None, [f"data.stores={shop}"])
    shape = widths.choose(settings_of.data, headwater.Store(shop).metadata(), 128, lambda _: None)
    found = {of.relation.name: of for of in shape.widths}
    assert found["orders.customer"].role == "history"
    assert found["orders.product"].role == "sibling"
    assert found["orders.customer"].width >= 2 * found["orders.product"].width


SETTINGS = [
    "model.width=32", "model.heads=2", "model.layers=2", "model.hidden=64",
    "model.rematerialise=false", "model.epochs=false", "data.batch_size=64",
    "data.sequence_length=16", "data.max_rows=12", "data.child_width=2",
    "optimizer.steps=240", "optimizer.warmup_steps=20",
    "run.evaluate_every=120", "run.evaluate_batches=4", "run.checkpoint_every=120",
    "run.threads=1", "run.boosting=false",
]  # fmt: skip


@pytest.mark.slow
def test_a_short_training_ranks_better_than_chance_and_popularity(shop, tmp_path):
    out = tmp_path / "run"
    trained = command("train", *sets([f"data.stores={shop}", *SETTINGS]), "--out", out)
    assert trained.returncode == 0, trained.stderr
    found = confluence.evaluate(out, splits=["test"], out=tmp_path / "answers.csv")
    of_task = found.tasks["shop/next product"]
    scores = of_task["test"]
    assert of_task["leading"] == "map"
    others = {name: of["map"] for name, of in scores["baselines"].items()}
    assert scores["map"] > max(others.values()) + 0.1, (scores, others)
    low, high = scores["interval"]
    assert low <= scores["map"] <= high
    assert any("the true ones and 9 drawn" in line for line in found.remarks)
    assert "map" in repr(found)
    assert Results.from_dict(found.to_dict()).remarks == found.remarks
    # The keys of the pair: customer, time, product.
    with (tmp_path / "answers.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == scores["seeds"]
    customer, time, product = rows[0]["key"].split("|")
    assert (int(customer) < 120, int(product) < 200) == (True, True)
    assert rows[0]["obs_time"].startswith(time[:10])
    refused = command("predict", out, "--task", "next product", "--at", "2022-12-01")
    assert refused.returncode != 0
    assert "whose rows are pairs" in refused.stderr
    seeds = tmp_path / "seeds.csv"
    seeds.write_text(f"customer,at,product,obs_time\n{customer},{time},{product},{time}\n")
    predicted = command("predict", out, "--task", "next product", "--seeds", seeds)
    assert predicted.returncode == 0, predicted.stderr

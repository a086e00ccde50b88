"""What pretraining on masked cells gains: labels alone beside masked cells first, on the demo shop.

    python benches/pretraining.py --work FOLDER [--f1db FOLDER] [--record FILE]

The store of the pretraining has every twentieth train label of the task. Then runs on these few
labels and on all labels start from its parameters, and from random ones. With the tables of F1DB, a
run is pretrained on both stores, and scored on a third one without any training on it, and after
some. A seed sets the initial parameters, the order of the batches and the masks.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import statistics
import subprocess
from pathlib import Path
from typing import Any

import prepare

EXAMPLE = Path(__file__).parents[1] / "examples"
PRETRAIN, TRAIN = (EXAMPLE / "demo-shop" / f"{name}.toml" for name in ("pretrain", "train"))
KEPT_LABELS = 20
# Smaller than the examples, so that all takes about half an hour on one core.
PRETRAINING = ["optimizer.steps=200", "data.batch_size=16"]
TRAINING = [
    "optimizer.steps=150", "data.batch_size=16", "run.evaluate_every=50",
    "run.evaluate_batches=20", "run.boosting=false",
]  # fmt: skip
TEAMS, MATCHES = 60, 3000
LEAGUE = """
database = "league"

[[table]]
name = "teams"
key = "id"
columns = { id = "ignored", strength = "numerical" }

[[table]]
name = "matches"
key = "id"
columns = { id = "ignored", home = "ignored", away = "ignored", home_won = "boolean" }
references = [{ columns = "home", to = "teams" }, { columns = "away", to = "teams" }]

[[task]]
name = "home_won"
cell = { table = "matches", column = "home_won" }
sees_everything = true
"""
# The contexts of a match: its two teams, and no other match.
OF_LEAGUE = [
    "data.tasks=['home_won']", "data.mask_share=0.0", "data.pools={}", "data.visible_until=''",
    "data.child_widths={ 'matches.home' = 0, 'matches.away' = 0 }", "data.sequence_length=8",
    "data.max_rows=4", "optimizer.warmup_steps=1", "run.evaluate_batches=0", "run.boosting=false",
]  # fmt: skip


def run(*words: object) -> None:
    """Runs a command to its end."""
    print("$", *words, flush=True)
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)


def train(out: Path, config: Path, seed: int, settings: list[str], *more: object) -> dict[str, Any]:
    """Trains a run; returns its results with the CPU minutes that it took."""
    settings = [*settings, f"optimizer.seed={seed}", f"data.seed={42 + seed}"]
    before = os.times()
    run(
        prepare.BIN / "confluence", "train", "--config", config, *more, "--out", out,
        *(word for setting in settings for word in ("--set", setting)),
    )  # fmt: skip
    after = os.times()
    used = sum(after[2:4]) - sum(before[2:4])
    return {"cpu_minutes": round(used / 60, 1), **json.loads((out / "results.json").read_text())}


def scores(runs: list[dict[str, Any]], task: str) -> dict[str, Any]:
    """Returns the AUROC of each seed on the test split, their mean, and the CPU minutes."""
    found = [of["tasks"][task]["test"]["auroc"] for of in runs]
    return {
        "test_auroc": {"mean": round(statistics.mean(found), 4), "seeds": found},
        "cpu_minutes": [of["cpu_minutes"] for of in runs],
    }


def shop_stores(work: Path) -> tuple[Path, Path]:
    """Returns a store of the demo shop with all labels, and one with few train labels."""
    data = work / "shop"
    run(prepare.BIN / "headwater", "demo-data", data)
    all_labels = prepared(data, EXAMPLE / "demo-shop/schema.toml", work / "all.store")
    path = data / "task_churn.csv"
    header, *lines = path.read_text().splitlines(keepends=True)
    of_train = [line for line in lines if line.strip().endswith("train")]
    left_out = set(of_train) - set(of_train[::KEPT_LABELS])
    path.write_text(header + "".join(line for line in lines if line not in left_out))
    return all_labels, prepared(data, EXAMPLE / "demo-shop/schema.toml", work / "few.store")


def prepared(data: Path, schema: Path, store: Path) -> Path:
    """Prepares a store, and returns it."""
    run(prepare.BIN / "headwater", "prepare", data, "--schema", schema, "--out", store)
    return store


def league_store(work: Path) -> Path:
    """Returns a store of matches that the stronger of two teams wins."""
    folder, draws = work / "league", random.Random(7)
    folder.mkdir()
    strength = [draws.gauss(0, 1) for _ in range(TEAMS)]
    matches = [(at, draws.randrange(TEAMS), draws.randrange(TEAMS)) for at in range(MATCHES)]
    tables = {
        "teams": (("id", "strength"), enumerate(strength)),
        "matches": (
            ("id", "home", "away", "home_won"),
            [(*of, str(strength[of[1]] > strength[of[2]]).lower()) for of in matches],
        ),
    }
    for name, (header, rows) in tables.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([header, *rows])
    (folder / "schema.toml").write_text(LEAGUE)
    return prepared(folder, folder / "schema.toml", work / "league.store")


def of_one_store(work: Path, seeds: int) -> dict[str, Any]:
    """Compares runs from random parameters with runs from those of masked cells."""
    all_labels, few_labels = shop_stores(work)
    pretrained = [
        train(
            work / f"pretrained-{seed}", PRETRAIN, seed, [f"data.stores={few_labels}", *PRETRAINING]
        )
        for seed in range(seeds)
    ]
    found: dict[str, Any] = {
        "pretraining": {
            "cpu_minutes": [of["cpu_minutes"] for of in pretrained],
            "masked": [of["masked"] for of in pretrained],
        }
    }
    for labels, store in (("all labels", all_labels), ("few labels", few_labels)):
        of_labels = {}
        for start in ("random", "masked cells"):
            runs = []
            for seed in range(seeds):
                more = [] if start == "random" else ["--from", work / f"pretrained-{seed}"]
                out = work / f"{labels}-{start}-{seed}".replace(" ", "-")
                runs.append(train(out, TRAIN, seed, [f"data.stores={store}", *TRAINING], *more))
            of_labels[start] = scores(runs, "demo-shop/churn")
        found[labels] = of_labels
        print(json.dumps(of_labels), flush=True)
    return found


def of_two_stores(work: Path, f1db: Path, seeds: int) -> dict[str, Any]:
    """Pretrains on the shop and on F1DB; scores on the league, without and with some training."""
    races = prepared(f1db, EXAMPLE / "f1db/schema.toml", work / "f1db.store")
    league = league_store(work)
    settings = [
        f"data.stores=['{work / 'few.store'}', '{races}']",
        "data.pools={ orders = '', customers = '2022-06-19', race_results = '' }",
        *PRETRAINING,
    ]
    found: dict[str, Any] = {"steps": {}}
    pretrained = [train(work / f"both-{seed}", PRETRAIN, seed, settings) for seed in range(seeds)]
    found["pretraining"] = {"masked": [of["masked"] for of in pretrained]}
    # The first step of a warm-up has a rate of 0: it changes nothing.
    for steps in (1, 50):
        of_steps = {}
        for start in ("random", "masked cells"):
            runs = []
            for seed in range(seeds):
                more = [] if start == "random" else ["--from", work / f"both-{seed}"]
                out = work / f"league-{steps}-{start}-{seed}".replace(" ", "-")
                given = [f"data.stores={league}", *OF_LEAGUE, f"optimizer.steps={steps}"]
                runs.append(train(out, PRETRAIN, seed, given, *more))
            of_steps[start] = scores(runs, "league/home_won")
        found["steps"][str(steps)] = of_steps
        print(json.dumps(of_steps), flush=True)
    return found


def main() -> None:
    """Runs the comparisons and writes the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--f1db", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    args.work.mkdir()
    record = prepare.heading("AUROC after pretraining on masked cells, beside random parameters")
    record["demo shop"] = of_one_store(args.work, args.seeds)
    if args.f1db is None:
        print("skipped: two stores, without --f1db FOLDER")
    else:
        record["two stores"] = of_two_stores(args.work, args.f1db, args.seeds)
    prepare.publish(record, args.record)


if __name__ == "__main__":
    main()

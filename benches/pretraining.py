"""What pretraining on masked cells gains: labels alone beside masked cells first, on the demo shop.

    python benches/pretraining.py --work FOLDER [--f1db FOLDER] [--record FILE]

The store of the pretraining has every twentieth train label of the task. Then runs on these few
labels and on all labels start from its parameters, and from random ones. With the tables of F1DB, a
run is pretrained on both stores, and scored on a third one without any training on it, and after
some. A seed sets the initial parameters, the order of the batches and the masks. What an earlier
call with the same folder has made is not made again.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import statistics
import subprocess
from pathlib import Path
from typing import Any

import prepare

EXAMPLE = Path(__file__).parents[1] / "examples"
PRETRAIN, TRAIN = (EXAMPLE / "demo-shop" / f"{name}.toml" for name in ("pretrain", "train"))
KEPT_LABELS = 20
# Smaller than the example, so that all takes about an hour of one core.
PRETRAINING = ["optimizer.steps=200", "data.batch_size=16"]
TRAINING = [
    "optimizer.steps=150", "run.evaluate_every=50", "run.evaluate_batches=20",
    "run.boosting=false",
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
    """Trains a run, unless an earlier call of this program has; returns its results."""
    if not (out / "results.json").exists():
        settings = [*settings, f"optimizer.seed={seed}", f"data.seed={42 + seed}"]
        changes = [word for setting in settings for word in ("--set", setting)]
        run(prepare.BIN / "confluence", "train", "--config", config, *more, "--out", out, *changes)
    results: dict[str, Any] = json.loads((out / "results.json").read_text())
    return results


def scores(runs: list[dict[str, Any]], task: str) -> dict[str, Any]:
    """Returns the AUROC of each seed, its mean on the test split, and the CPU seconds of steps."""
    found = {split: [of["tasks"][task][split]["auroc"] for of in runs] for split in ("val", "test")}
    return {
        "test_mean": round(statistics.mean(found["test"]), 4),
        **found,
        "cpu_seconds": [round(of["cpu_seconds"] or 0) for of in runs],
    }


def pretrain(work: Path, name: str, seeds: int, settings: list[str]) -> list[Path]:
    """Pretrains a run for each seed; returns their folders."""
    folders = [work / f"{name}-{seed}" for seed in range(seeds)]
    for seed, out in enumerate(folders):
        train(out, PRETRAIN, seed, [*settings, *PRETRAINING])
    return folders


def compare(
    work: Path, name: str, config: Path, task: str, pretrained: list[Path], settings: list[str]
) -> dict[str, Any]:
    """Trains runs from random parameters, and runs from those of pretrained ones."""
    found = {}
    for start in ("random", "masked cells"):
        runs = []
        for seed, run_before in enumerate(pretrained):
            more = [] if start == "random" else ["--from", run_before]
            out = work / f"{name}-{start}-{seed}".replace(" ", "-")
            runs.append(train(out, config, seed, settings, *more))
        found[start] = scores(runs, task)
    return found


def losses(folders: list[Path]) -> list[dict[str, Any]]:
    """Returns for each run the losses of masked cells by step and pool, on the val split."""
    logs = [(out / "metrics.jsonl").read_text().splitlines() for out in folders]
    return [
        {
            f"step {record['step']}, {record['task']}": record["masked"]
            for record in map(json.loads, log)
            if "split" in record
        }
        for log in logs
    ]


def shop_stores(work: Path) -> dict[str, Path]:
    """Returns a store of the demo shop with all labels, and one with few train labels."""
    data, stores = work / "shop", {of: work / f"{of}.store" for of in ("all", "few")}
    if not data.exists():
        run(prepare.BIN / "headwater", "demo-data", data)
    schema, labels = EXAMPLE / "demo-shop/schema.toml", data / "task_churn.csv"
    prepared(data, schema, stores["all"])
    if not stores["few"].exists():
        header, *lines = labels.read_text().splitlines(keepends=True)
        of_train = [line for line in lines if line.strip().endswith("train")]
        left_out = set(of_train) - set(of_train[::KEPT_LABELS])
        labels.write_text(header + "".join(line for line in lines if line not in left_out))
    prepared(data, schema, stores["few"])
    return stores


def prepared(data: Path, schema: Path, store: Path) -> Path:
    """Prepares a store, unless it is there; returns it."""
    if not store.exists():
        run(prepare.BIN / "headwater", "prepare", data, "--schema", schema, "--out", store)
    return store


def league_store(work: Path) -> Path:
    """Returns a store of matches that the stronger of two teams wins."""
    folder, draws = work / "league", random.Random(7)
    folder.mkdir(exist_ok=True)
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


def of_labels(work: Path, labels: str, seeds: int) -> dict[str, Any]:
    """Compares on the demo shop with "all" or "few" labels; pretraining sees the few alone."""
    stores = shop_stores(work)
    pretrained = pretrain(work, "pretrained", seeds, [f"data.stores={stores['few']}"])
    settings = [f"data.stores={stores[labels]}", *TRAINING]
    task = "demo-shop/churn"
    return {
        "masked": losses(pretrained),
        **compare(work, labels, TRAIN, task, pretrained, settings),
    }


def of_two_stores(work: Path, f1db: Path, seeds: int) -> dict[str, Any]:
    """Pretrains on the shop and on F1DB; compares on the league, without and with training."""
    races = prepared(f1db, EXAMPLE / "f1db/schema.toml", work / "f1db.store")
    pools = "{ orders = '', customers = '2022-06-19', race_results = '' }"
    stores = f"['{shop_stores(work)['few']}', '{races}']"
    pretrained = pretrain(work, "both", seeds, [f"data.stores={stores}", f"data.pools={pools}"])
    league = f"data.stores={league_store(work)}"
    found: dict[str, Any] = {"masked": losses(pretrained)}
    # The first step of a warm-up has a rate of 0: it changes nothing.
    for steps in (1, 50):
        settings = [league, *OF_LEAGUE, f"optimizer.steps={steps}"]
        found[f"{steps} steps"] = compare(
            work, f"league-{steps}", PRETRAIN, "league/home_won", pretrained, settings
        )
    return found


def main() -> None:
    """Runs the comparisons and writes the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--f1db", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--labels", nargs="*", choices=("all", "few"), default=("all", "few"))
    args = parser.parse_args()
    args.work.mkdir(exist_ok=True)
    record = prepare.heading("AUROC after pretraining on masked cells, beside random parameters")
    for labels in args.labels:
        record[f"{labels} labels"] = of_labels(args.work, labels, args.seeds)
        prepare.publish(record, args.record)
    if args.f1db is None:
        print("skipped: two stores, without --f1db FOLDER")
    else:
        record["two stores"] = of_two_stores(args.work, args.f1db, args.seeds)
        prepare.publish(record, args.record)


if __name__ == "__main__":
    main()

"""Measures the sampler beside that of RT-J, a living peer: preparing, start, batches, resume.

    python benches/living_peer.py --peer-python PEER/bin/python --scale 0.1 --record NAME.json

Needs the `headwater` package and `tpchgen-cli` (`make bench` installs both), and the peer in an
environment of its own, without its dependencies on models:

    python -m venv PEER
    PEER/bin/pip install --no-deps relational-transformer==1.10.0
    PEER/bin/pip install numpy ml-dtypes polars

Both sample TPC-H on one core, with one thread and without prefetching: 32 sequences of 1,024
cells, 16 children, seeds from all rows of `orders`. The peer's Rust library is loaded alone,
without torch. It wants keys as numbers of rows, one column for each, and a time in each table, so
the tables are converted first, which does not count. Its vectors of texts are made up. Processes
take turns; each figure is the median of several rounds. `settings` in the record names what differs
in meaning.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import prepare

B, S, WIDTH, ROWS, DIMENSION = 32, 1024, 16, 208, 256
TASK, TABLE, TARGET = "orders.o_totalprice", "orders", "o_totalprice of orders"
SEED = 1
NEAR, FAR = 10, 100_000
FIRST, WARM_UP, TURN = 200, 500, 40
CHOSEN_BATCHES = 40
CORE = min(os.sched_getaffinity(0))
EMBEDDER = "made-up"

# The peer's settings: the nearest to ours, and those that its authors train with.
NEAREST = {"local": [S], "widths": [WIDTH], "latest": [False], "walks": 0}
RELEASED = {
    "local": [128, 256, 512, 1024],
    "widths": [8, 16, 32, 64, 128, 256],
    "latest": [False, True],
    "walks": 10_000,
}
KINDS: dict[str, dict[str, Any]] = {
    "headwater": {},
    "peer": {**NEAREST, "d_text": DIMENSION},
    "headwater_texts_on_the_device": {"texts": "global"},
    "headwater_compact_texts_on_the_device": {"texts": "global", "compact": True},
    "peer_vectors_of_length_1": {**NEAREST, "d_text": 1},
    "peer_released_settings": {**RELEASED, "d_text": DIMENSION},
}
SLOW = {"peer_released_settings": 2}
SETTINGS = {
    "both": f"B={B} S={S}, one thread, no prefetching, seeds of all rows of orders, target "
    "o_totalprice; the peer's library alone, without torch",
    "width": f"headwater: {WIDTH} children through each relation; peer: {WIDTH} children of a row, "
    "of all relations together. In TPC-H only nation has children through two relations",
    "context": f"headwater: one context of at most {ROWS} rows a sequence, parents first. Peer: "
    f"one context of up to {S} cells, then contexts of other orders until {S} cells are full",
    "cells": "headwater has a cell for each identifier; the peer has none, and drops a constant "
    "column. Order lines have the time of their order; the peer needs it as a column, a cell more",
    "keys": "the peer has no composite keys: order lines refer to the row of partsupp",
    "texts": f"vectors of {DIMENSION} numbers of 16 bits. headwater: each text once, categories "
    "and names of columns as numbers. Peer: vectors of text and column name in every cell",
    "times": "headwater leaves out date cells later than the seed's time; the peer compares the "
    "time of the row alone",
    "seeds": "headwater: each order once in an epoch. Peer: drawn with replacement",
    "peer": "num_walks 0, walk_length 20, prefer_latest False, mask_prob_max 0, all items, "
    "timeout_per_item 10^6 s (its authors: 10 s, after which it takes another seed), "
    "mmap_populate False (its authors: True)",
    "released": "num_walks 10,000, local_ctx_size 128 to 1,024, bfs_width 8 to 256, prefer_latest "
    f"both, as its authors pretrain, here with S={S}",
}


# What runs in processes of their own.


def peer_library() -> Any:
    """Loads the peer's Rust library alone."""
    import ml_dtypes  # noqa: F401  # The library needs NumPy to know bfloat16.

    package = importlib.util.find_spec("rt")
    if package is None or not package.submodule_search_locations:
        raise ImportError("no package rt: relational-transformer is not installed")
    path = Path(package.submodule_search_locations[0]) / "rustler.abi3.so"
    spec = importlib.util.spec_from_file_location("rustler", path)
    assert spec
    assert spec.loader
    library = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(library)
    return library


def convert(source: str, out: str) -> None:
    """Writes TPC-H as the peer wants it, and a random choice of seeds."""
    import polars as pl

    folder = Path(out) / "db"
    folder.mkdir(parents=True)
    tables = {}
    for path in sorted(Path(source).glob("*.parquet")):
        frame = pl.read_parquet(path)
        decimals = [name for name, kind in frame.schema.items() if kind.is_decimal()]
        tables[path.stem] = frame.with_columns(pl.col(decimals).cast(pl.Float64))
    parents = {
        "nation": "n_nationkey",
        "region": "r_regionkey",
        "supplier": "s_suppkey",
        "customer": "c_custkey",
        "part": "p_partkey",
        "orders": "o_orderkey",
    }
    places = {
        name: tables[name].select(pl.col(key).alias("key")).with_row_index("place")
        for name, key in parents.items()
    }
    chosen = tables[TABLE].with_row_index("row").sample(B * CHOSEN_BATCHES, seed=SEED, shuffle=True)
    seeds = {
        "rows": chosen["row"].to_list(),
        "keys": chosen["o_orderkey"].to_list(),
        "times": chosen["o_orderdate"].cast(pl.Datetime("us")).cast(pl.Int64).to_list(),
    }
    (Path(out) / "seeds.json").write_text(json.dumps(seeds))

    lines = tables["lineitem"].join(
        tables["orders"].select("o_orderkey", pl.col("o_orderdate").alias("l_orderdate")),
        left_on="l_orderkey",
        right_on="o_orderkey",
        how="left",
        maintain_order="left",
    )
    pairs = tables["partsupp"].select("ps_partkey", "ps_suppkey").with_row_index("l_partsupp")
    tables["lineitem"] = lines.join(
        pairs,
        left_on=["l_partkey", "l_suppkey"],
        right_on=["ps_partkey", "ps_suppkey"],
        how="left",
        maintain_order="left",
    ).drop("l_partkey", "l_suppkey")
    references = {
        "nation": {"n_regionkey": "region"},
        "supplier": {"s_nationkey": "nation"},
        "customer": {"c_nationkey": "nation"},
        "partsupp": {"ps_partkey": "part", "ps_suppkey": "supplier"},
        "orders": {"o_custkey": "customer"},
        "lineitem": {"l_orderkey": "orders"},
    }
    manifest: dict[str, dict[str, Any]] = {}
    for name, frame in tables.items():
        links = references.get(name, {})
        for column, to in links.items():
            place = places[to].rename({"key": column})
            frame = (
                frame.join(place, on=column, how="left", maintain_order="left")
                .with_columns(pl.col("place").cast(pl.Int64).alias(column))
                .drop("place")
            )
        manifest[name] = {"fkeys": dict(links)}
        if name in parents:
            manifest[name]["pkey"] = parents[name]
        frame.write_parquet(folder / f"{name}.parquet")
    manifest["lineitem"]["fkeys"]["l_partsupp"] = "partsupp"
    manifest["lineitem"]["time_col"] = "l_orderdate"
    manifest["orders"]["time_col"] = "o_orderdate"
    # JSON is YAML.
    (Path(out) / "manifest.yaml").write_text(json.dumps({"name": "tpch", "tables": manifest}))


def peer_prepare(source: str, out: str, memory: str) -> None:
    """Runs the peer's preprocess with so many bytes of memory at most."""
    resource.setrlimit(resource.RLIMIT_DATA, (int(memory), int(memory)))
    peer_library().preprocess(source, out, skip_tasks=True)


def make_up_vectors(store: str) -> None:
    """Writes a vector for each of the peer's texts: 4,096 random ones again and again."""
    import ml_dtypes
    import numpy as np

    count = json.loads((Path(store) / "tpch" / "meta.json").read_text())["num_text_strings"]
    block = np.random.default_rng(SEED).standard_normal((4096, DIMENSION), np.float32)
    block = (block / DIMENSION**0.5).astype(ml_dtypes.bfloat16)
    with (Path(store) / "tpch" / f"text_emb_{EMBEDDER}.bin").open("wb") as file:
        for start in range(0, count, len(block)):
            file.write(block[: count - start].tobytes())


class Headwater:
    """Our sampler, as the measurements use it."""

    def __init__(self, store: str, settings: dict[str, Any], populate: bool) -> None:
        """Opens a sampler."""
        import headwater

        self.sampler = headwater.Sampler(
            store,
            seed=SEED,
            tasks=[TASK],
            split_ratios=(1.0, 0.0, 0.0),
            default_batch_size=B,
            default_sequence_length=S,
            bfs_child_width=WIDTH,
            max_rows=ROWS,
            num_prefetch=0,
            num_threads=1,
            **settings,
        )

    def batch(self) -> dict[str, Any]:
        """Returns the next batch."""
        return self.sampler.next_train_batch()

    def position(self) -> str:
        """Returns the state to resume from."""
        return bytes(self.sampler.cursor()).hex()

    def position_at(self, step: int) -> str:
        """Returns the state of a step that was not reached yet."""
        self.sampler.seek("train", step)
        return self.position()

    def resume(self, position: str) -> None:
        """Goes to a position."""
        self.sampler.resume(bytes.fromhex(position))

    def chosen(self, seeds: dict[str, list[int]], start: int) -> dict[str, Any]:
        """Returns the contexts of chosen rows."""
        keys, times = (seeds[name][start : start + B] for name in ("keys", "times"))
        return self.sampler.sample(TASK, keys, times)

    def seeds(self, batch: dict[str, Any]) -> list[int]:
        """Returns the seeds' rows."""
        return [int(row) for row in batch["seed_row"]]

    def content(self, batch: dict[str, Any]) -> dict[str, float]:
        """Counts what a batch has."""
        import numpy as np

        used = batch["is_padding"] == 0
        rows = np.arange(ROWS) < batch["num_rows"][:, np.newaxis]
        late = rows & (batch["row_time"] > batch["obs_time"][:, np.newaxis])
        result = {
            "cells": int(used.sum()),
            "cells_of_identifiers": int((used & (batch["semantic_types"] == 0)).sum()),
            "rows_per_sequence": float(batch["num_rows"].mean()),
            "contexts_per_sequence": 1.0,
            "greatest_distance": int(batch["row_hop"].max()),
            "share_of_sequences_with_a_later_row": float(late.any(axis=1).mean()),
        }
        if "timestamp_us" in batch:
            dates = used & (batch["semantic_types"] == 2) & (batch["is_null"] == 0)
            later = dates & (batch["timestamp_us"] > batch["obs_time"][:, np.newaxis])
            result["share_of_sequences_with_a_later_date"] = float(later.any(axis=1).mean())
        return result


class Peer:
    """The peer's sampler, as the measurements use it."""

    def __init__(self, store: str, settings: dict[str, Any], populate: bool) -> None:
        """Opens a sampler as the peer's Python code does."""
        folder = Path(store) / "tpch"
        table = json.loads((folder / "table_info.json").read_text())[f"{TABLE}:Db"]
        self.columns = json.loads((folder / "column_index.json").read_text())
        self.offset = table["node_idx_offset"]
        self.sampler = peer_library().Sampler(
            dataset_tuples=[("tpch", TABLE, self.offset, table["num_nodes"])],
            global_rank=0,
            local_rank=0,
            world_size=1,
            local_ctx_size_list=settings["local"],
            bfs_width_list=settings["widths"],
            num_walks=settings["walks"],
            walk_length=20,
            prefer_latest_list=settings["latest"],
            mask_prob_max=0.0,
            embedder=EMBEDDER,
            pre_dir=store,
            d_text=settings["d_text"],
            shuffle_seed=SEED,
            context_seed=SEED,
            target_columns=[self.columns[TARGET]],
            columns_to_drop=[[]],
            cutoff_timestamps=[None],
            items_per_task=-1,
            quiet=True,
            ignore_data_errors=False,
            num_prev_skipped=0,
            mmap_populate=populate,
            legacy_boolean=False,
            timeout_per_item=1e6,
            vector_db_path=None,
        )
        self.step = 0

    def batch(self) -> dict[str, Any]:
        """Returns the next batch."""
        self.step += 1
        return dict(self.sampler.batch_py(None, B, S))

    def position(self) -> str:
        """Returns the state to resume from: the number of the step."""
        return str(self.step)

    def position_at(self, step: int) -> str:
        """Goes to a step that was not reached yet, and returns its state."""
        self.resume(str(step))
        return str(step)

    def resume(self, position: str) -> None:
        """Goes to a position."""
        self.step = int(position)
        self.sampler.set_step_py(self.step)

    def chosen(self, seeds: dict[str, list[int]], start: int) -> dict[str, Any]:
        """Returns the contexts of chosen rows."""
        rows = [self.offset + row for row in seeds["rows"][start : start + B]]
        return dict(self.sampler.batch_for_nodes_py(rows, 0, S))

    def seeds(self, batch: dict[str, Any]) -> list[int]:
        """Returns the seeds' rows: the first cell is the target."""
        return [int(node) - self.offset for node in batch["node_idxs"].reshape(B, S)[:, 0]]

    def content(self, batch: dict[str, Any]) -> dict[str, float]:
        """Counts what a batch has."""
        import numpy as np

        def two(name: str) -> Any:
            return batch[name].reshape(B, S)

        used, nodes, contexts = ~two("is_padding"), two("node_idxs"), two("seed_node_idxs")
        seed = nodes == nodes[:, :1]
        # bfloat16 keeps the order of dates, so a greater one is later; some later ones are missed.
        dates = two("datetime_values").astype(np.float32)
        is_date = used & np.isin(
            two("col_name_idxs"),
            [index for name, index in self.columns.items() if "date of" in name],
        )
        own = np.where(is_date & seed, dates, -np.inf).max(axis=1)
        later = is_date & (dates > own[:, np.newaxis])
        own_context = used & (contexts == nodes[:, :1])
        times = two("timestamps")
        late = used & (times > times[:, :1])
        return {
            "cells": int(used.sum()),
            "cells_of_identifiers": 0,
            "rows_per_sequence": statistics.mean(
                len(np.unique(row[use])) for row, use in zip(nodes, used, strict=True)
            ),
            "contexts_per_sequence": statistics.mean(
                len(np.unique(row[use])) for row, use in zip(contexts, used, strict=True)
            ),
            "cells_of_the_seeds_own_contexts": int(own_context.sum()),
            "greatest_distance": int(two("bfs_depths").max()),
            "share_of_sequences_with_a_later_row": float(late.any(axis=1).mean()),
            "share_of_sequences_with_a_later_date": float(later.any(axis=1).mean()),
        }


def digest(batch: dict[str, Any]) -> str:
    """Returns a digest of all bytes of a batch."""
    total = hashlib.sha256()
    for name in sorted(batch):
        total.update(name.encode())
        value = batch[name]
        total.update(str(value).encode() if isinstance(value, int) else value.tobytes())
    return total.hexdigest()[:16]


def status_mb(name: str) -> float:
    """Returns a figure of this process's memory."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ValueError(name)


class Answers:
    """A process's answers to what the main process asks."""

    def __init__(self, sampler: Headwater | Peer) -> None:
        """Keeps the sampler."""
        self.sampler = sampler

    def batches(self, count: int) -> dict[str, float]:
        """Measures some batches."""
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(count):
            batch = self.sampler.batch()
            del batch
        return {
            "cpu_ms": (time.process_time() - cpu) / count * 1e3,
            "wall_ms": (time.perf_counter() - wall) / count * 1e3,
        }

    def chosen(self, seeds: dict[str, list[int]], start: int) -> dict[str, float]:
        """Measures the contexts of chosen rows."""
        cpu = time.process_time()
        batch = self.sampler.chosen(seeds, start)
        del batch
        return {"cpu_ms": (time.process_time() - cpu) * 1e3}

    def content(self, count: int) -> dict[str, float]:
        """Returns what a batch has, the mean of some."""
        found, seeds = [], []
        for _ in range(count):
            batch = self.sampler.batch()
            size = sum(value.nbytes for value in batch.values() if not isinstance(value, int))
            found.append({**self.sampler.content(batch), "bytes": size})
            seeds += self.sampler.seeds(batch)
            del batch
        means = {name: round(statistics.mean(one[name] for one in found), 3) for name in found[0]}
        means["padding_share"] = round(1 - means["cells"] / (B * S), 4)
        return {**means, "seeds": len(seeds), "seeds_that_came_again": len(seeds) - len(set(seeds))}

    def memory(self) -> dict[str, float]:
        """Returns the memory of the process."""
        names = {"rss_mb": "VmRSS", "rss_own_mb": "RssAnon", "rss_of_files_mb": "RssFile"}
        return {name: round(status_mb(key), 1) for name, key in names.items()}

    def resume_costs(self, positions: dict[str, str]) -> dict[str, float]:
        """Measures how an open sampler goes to positions, without and with the first batch."""
        result = {}
        for name, position in positions.items():
            cpu, wall = time.process_time(), time.perf_counter()
            self.sampler.resume(position)
            result[f"{name}_position_ms"] = (time.perf_counter() - wall) * 1e3
            batch = self.sampler.batch()
            result[f"{name}_first_batch_cpu_ms"] = (time.process_time() - cpu) * 1e3
            result[f"{name}_first_batch_wall_ms"] = (time.perf_counter() - wall) * 1e3
            del batch
        return result

    def position_at(self, step: int) -> str:
        """Returns the state of a step."""
        return self.sampler.position_at(step)

    def digests(self, count: int, position: str | None) -> dict[str, Any]:
        """Returns the digests of the next batches, and the position after the first `NEAR`."""
        if position is not None:
            self.sampler.resume(position)
        found, near = [], None
        for number in range(count):
            near = self.sampler.position() if number == NEAR else near
            found.append(digest(self.sampler.batch()))
        return {"digests": found, "position": near}


def answer(settings: dict[str, Any]) -> None:
    """Opens a sampler, makes a batch, and answers what is asked until there are no questions."""
    sampler = (Peer if settings["peer"] else Headwater)(
        settings["store"], settings["settings"], settings["populate"]
    )
    if settings["position"] is not None:
        sampler.resume(settings["position"])
    if settings["batch"]:
        sampler.batch()
    print(json.dumps({"cpu_s": time.process_time()}), flush=True)
    answers = Answers(sampler)
    for line in sys.stdin:
        question = json.loads(line)
        print(json.dumps(getattr(answers, question.pop("ask"))(**question)), flush=True)


# The main process.


class Worker:
    """A process with a sampler on the one core."""

    def __init__(
        self,
        python: str,
        store: Path,
        settings: dict[str, Any],
        *,
        populate: bool = False,
        position: str | None = None,
        batch: bool = True,
    ) -> None:
        """Starts the process and waits for its first batch."""
        self.is_peer = python != sys.executable
        given = {
            "peer": self.is_peer,
            "store": str(store.resolve()),
            "settings": settings,
            "populate": populate,
            "position": position,
            "batch": batch,
        }
        started = time.perf_counter()
        self.process = subprocess.Popen(
            [python, __file__, "--worker", json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        first = self._read()
        self.started = {"cpu_s": first["cpu_s"], "wall_s": time.perf_counter() - started}

    def _read(self) -> Any:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            who = "the peer's" if self.is_peer else "headwater's"
            sys.exit(f"{who} process ended with status {self.process.wait()}; see above")
        return json.loads(line)

    def ask(self, question: str, **arguments: Any) -> Any:
        """Asks the process."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"ask": question, **arguments}) + "\n")
        self.process.stdin.flush()
        return self._read()

    def end(self) -> None:
        """Ends the process."""
        self.process.communicate()


def medians(runs: list[dict[str, float]], digits: int = 3) -> dict[str, Any]:
    """Returns the median of each figure, and all values of the CPU times."""
    result: dict[str, Any] = {
        name: round(statistics.median(run[name] for run in runs), digits) for name in runs[0]
    }
    for name in runs[0]:
        if name.startswith("cpu"):
            result[f"{name}_of_each_round"] = [round(run[name], digits) for run in runs]
    return result


class Bench:
    """The measurements at one scale."""

    def __init__(self, args: argparse.Namespace, scale: float) -> None:
        """Names the files."""
        self.args, self.scale = args, scale
        self.source = prepare.tpch(args.work, scale)
        self.own = args.work / f"living-peer-sf{scale:g}.db"
        self.converted = args.work / f"living-peer-sf{scale:g}-converted"
        self.peers = args.work / f"living-peer-sf{scale:g}-peer"
        self.by_kind = {
            kind: (args.peer_python, self.peers)
            if kind.startswith("peer")
            else (sys.executable, self.own)
            for kind in KINDS
        }
        self.result: dict[str, Any] = {}

    def worker(self, kind: str, **options: Any) -> Worker:
        """Starts a process with a sampler."""
        python, store = self.by_kind[kind]
        return Worker(python, store, KINDS[kind], **options)

    def in_peer(self, job: str, *arguments: str) -> dict[str, float]:
        """Runs a job in the peer's Python on the one core."""
        command = [self.args.peer_python, __file__, "--job", job, *arguments]
        return prepare.run(command, cores=1)

    def preparing(self) -> None:
        """Measures how both make their stores; then makes those with vectors of texts."""
        shutil.rmtree(self.converted, ignore_errors=True)
        converting = self.in_peer("convert", str(self.source), str(self.converted))
        own, peers = [], []
        for _ in range(self.args.prepare_rounds):
            options = ["--no-text-vectors", "--threads", "1"]
            own.append(prepare.prepare(self.source, self.own, *options, cores=1))
            own[-1]["mb"] = prepare.folder_bytes(self.own) / 1e6
            shutil.rmtree(self.peers, ignore_errors=True)
            names = [str(self.converted), str(self.peers), str(available_bytes())]
            peers.append(self.in_peer("prepare", *names))
            peers[-1]["mb"] = prepare.folder_bytes(self.peers) / 1e6
        prepare.prepare(self.source, self.own, "--threads", "1", cores=1)
        self.in_peer("vectors", str(self.peers))
        self.result["prepare_without_text_vectors"] = {
            "headwater": medians(own, 2),
            "peer": medians(peers, 2),
            "conversion_for_the_peer_cpu_s": round(converting["cpu_s"], 2),
        }
        self.result["store_with_text_vectors_mb"] = {
            "headwater": round(prepare.folder_bytes(self.own) / 1e6, 1),
            "peer": round(prepare.folder_bytes(self.peers) / 1e6, 1),
        }

    def starts(self) -> None:
        """Measures the time from the start of a process to its first batch, files in memory."""
        far = {kind: self.far_position(kind) for kind in ("headwater", "peer")}
        kinds: dict[str, tuple[str, dict[str, Any]]] = {
            "headwater": ("headwater", {}),
            "peer": ("peer", {}),
            "peer_populated": ("peer", {"populate": True}),
            f"headwater_at_step_{FAR}": ("headwater", {"position": far["headwater"]}),
            f"peer_at_step_{FAR}": ("peer", {"position": far["peer"]}),
        }
        runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
        alone = []
        for round_ in range(-1, self.args.rounds):
            alone.append(prepare.run([sys.executable, "-c", "import numpy"], cores=1))
            for name, (kind, options) in kinds.items():
                worker = self.worker(kind, **options)
                if round_ >= 0:  # The round before brings the files into memory.
                    runs[name].append(worker.started)
                worker.end()
        self.result["start_to_first_batch"] = {name: medians(of) for name, of in runs.items()}
        self.result["start_to_first_batch"]["of_that_python_and_numpy_cpu_s"] = round(
            statistics.median(run["cpu_s"] for run in alone[1:]), 3
        )

    def far_position(self, kind: str) -> str:
        """Returns the state of the far step."""
        worker = self.worker(kind)
        position: str = worker.ask("position_at", step=FAR)
        worker.end()
        return position

    def batches(self) -> None:
        """Measures batches in turns, memory, what batches have, and resuming an open sampler."""
        seeds = json.loads((self.converted / "seeds.json").read_text())
        workers = {kind: self.worker(kind) for kind in KINDS}
        memory, first = {}, {}
        for kind, worker in workers.items():
            first[kind] = round(worker.ask("batches", count=SLOW.get(kind, FIRST))["cpu_ms"], 3)
            memory[kind] = worker.ask("memory")
            if kind not in SLOW:
                worker.ask("batches", count=WARM_UP - FIRST)
        runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
        chosen: dict[str, list[dict[str, float]]] = {kind: [] for kind in ("headwater", "peer")}
        for round_ in range(self.args.rounds):
            for kind, worker in workers.items():
                if kind not in SLOW or round_ < 3:
                    runs[kind].append(worker.ask("batches", count=SLOW.get(kind, TURN)))
            for start in range(0, len(seeds["rows"]), B):
                for kind, of in chosen.items():
                    of.append(workers[kind].ask("chosen", seeds=seeds, start=start))
        positions = {
            kind: {
                f"step_{step}": workers[kind].ask("position_at", step=step) for step in (NEAR, FAR)
            }
            for kind in chosen
        }
        resumed: dict[str, list[dict[str, float]]] = {kind: [] for kind in chosen}
        for _ in range(3 * self.args.rounds):
            for kind, of in resumed.items():
                of.append(workers[kind].ask("resume_costs", positions=positions[kind]))
        content = {
            kind: worker.ask("content", count=SLOW.get(kind, FIRST))
            for kind, worker in workers.items()
        }
        # The compact form has dates as numbers, which tells whether one is too late.
        later = "share_of_sequences_with_a_later_date"
        content["headwater"][later] = content["headwater_compact_texts_on_the_device"][later]
        for worker in workers.values():
            worker.end()
        self.result["batches"] = {
            "after_batches": WARM_UP,
            "batches_of_a_turn": TURN,
            "fewer_in_both": SLOW,
            **{
                kind: {**medians(of), f"first_{SLOW.get(kind, FIRST)}_cpu_ms": first[kind]}
                for kind, of in runs.items()
            },
        }
        self.result["contexts_of_the_same_chosen_rows"] = {
            kind: round(statistics.median(run["cpu_ms"] for run in of), 3)
            for kind, of in chosen.items()
        }
        self.result["what_a_batch_has"] = content
        self.result["memory_after_batches"] = {"batches": FIRST, **memory}
        self.result["resume_in_an_open_sampler"] = {
            kind: medians(of) for kind, of in resumed.items()
        }
        self.result["state_bytes"] = {
            "headwater": len(positions["headwater"][f"step_{FAR}"]) // 2,
            "peer": len(positions["peer"][f"step_{FAR}"]),
        }

    def same_bits(self) -> None:
        """Tells whether batches are the same after resuming, and in another process."""
        found = {}
        for kind in ("headwater", "peer"):
            one, again, resumed = (self.worker(kind, batch=False) for _ in range(3))
            whole = one.ask("digests", count=2 * NEAR, position=None)
            second = again.ask("digests", count=2 * NEAR, position=None)
            rest = resumed.ask("digests", count=NEAR, position=whole["position"])
            far = one.ask("position_at", step=FAR)
            at_far = [w.ask("digests", count=3, position=far)["digests"] for w in (one, again)]
            found[kind] = {
                "another_run_equal": whole["digests"] == second["digests"],
                f"resumed_at_{NEAR}_equal": whole["digests"][NEAR:] == rest["digests"],
                f"two_processes_at_{FAR}_equal": at_far[0] == at_far[1],
                "batches_differ_from_each_other": len(set(whole["digests"])) == 2 * NEAR,
            }
            for worker in (one, again, resumed):
                worker.end()
        self.result["same_bits"] = found

    def measure(self) -> dict[str, Any]:
        """Runs all measurements."""
        if not self.args.reuse:
            self.preparing()
        self.starts()
        self.batches()
        self.same_bits()
        cpu = {kind: self.result["batches"][kind]["cpu_ms"] for kind in KINDS}
        rows = {kind: self.result["what_a_batch_has"][kind]["rows_per_sequence"] for kind in KINDS}
        own, peer = (self.result["contexts_of_the_same_chosen_rows"][k] for k in list(KINDS)[:2])
        self.result["ratios_of_cpu"] = {
            "peer_over_headwater": round(cpu["peer"] / cpu["headwater"], 2),
            "peer_vectors_of_length_1_over_headwater_texts_on_the_device": round(
                cpu["peer_vectors_of_length_1"] / cpu["headwater_texts_on_the_device"], 2
            ),
            "peer_over_headwater_a_row_of_a_context": round(
                cpu["peer"] / rows["peer"] / (cpu["headwater"] / rows["headwater"]), 2
            ),
            "peer_over_headwater_chosen_rows": round(peer / own, 2),
        }
        return {"load_average_at_the_end": os.getloadavg(), **self.result}


def available_bytes() -> int:
    """Returns the memory that programs can still have."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def peer_version(python: str) -> str:
    """Returns the peer's version; ends with a hint if it cannot be loaded."""
    command = [python, __file__, "--job", "version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        sys.exit(f"{python} cannot be run ({error.strerror}): name the Python of the environment")
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        sys.exit(
            f"{python} has no peer that can be measured: {last}\n"
            "The head of benches/living_peer.py says how to install it."
        )
    return done.stdout.strip()


def print_version() -> None:
    """Prints the peer's version after loading what the jobs need."""
    from importlib.metadata import version

    import polars  # noqa: F401

    peer_library()
    print(version("relational-transformer"))


JOBS: dict[str, Callable[..., None]] = {
    "convert": convert,
    "prepare": peer_prepare,
    "vectors": make_up_vectors,
    "version": print_version,
}


def main() -> None:
    """Runs the measurements and records them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peer-python", help="the Python of the environment that has the peer")
    parser.add_argument(
        "--scale", type=float, nargs="+", default=[0.1], help="TPC-H scale factors (default .1)"
    )
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each kind (default 7)")
    parser.add_argument(
        "--prepare-rounds", type=int, default=3, help="rounds of preparing (default 3)"
    )
    parser.add_argument("--reuse", action="store_true", help="use the stores of an earlier run")
    parser.add_argument("--work", type=Path, default=prepare.HERE.parent / "target" / "bench")
    parser.add_argument("--record", type=Path, help="write the figures here as JSON")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--job", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        answer(json.loads(args.worker))
        return
    if args.job:
        JOBS[args.job[0]](*args.job[1:])
        return
    if not args.peer_python:
        parser.error("--peer-python is needed: the head of this file says how to install the peer")
    os.sched_setaffinity(0, {CORE})
    os.environ |= {"POLARS_MAX_THREADS": "1", "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    version = peer_version(args.peer_python)
    record: dict[str, Any] = {
        **prepare.heading(
            f"headwater beside the sampler of RT-J (relational-transformer {version}), TPC-H, one "
            "core; CPU times are medians of rounds in turn, wall times are those of a shared "
            "machine"
        ),
        "settings": SETTINGS,
    }
    for scale in args.scale:
        record[f"scale_{scale:g}"] = Bench(args, scale).measure()
        prepare.publish(record, args.record)


if __name__ == "__main__":
    main()

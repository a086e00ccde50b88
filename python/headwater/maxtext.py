"""Trains MaxText on the token rows of an event store: `pip install maxtext` (0.2.5, Python 3.12).

    python -m headwater.maxtext pings.db base.yml run_name=first vocab_size=267 steps=1000

trains as `python -m maxtext.trainers.pre_train.train base.yml ..` does, on token rows. In a
program of your own, call `install("pings.db")` before MaxText's `main`, and set
`dataset_type=grain` and `grain_train_files` to the store. MaxText keeps the position of no other
type of data in its checkpoints: the cursor lies beside the model, and a run continues with the same
batches on any number of processes.
"""

from __future__ import annotations

import argparse
import base64
import sys
from typing import Any

from headwater._headwater import InvalidArgument
from headwater._optional import installed_by
from headwater._streams import Path
from headwater.events import Events
from headwater.sampler import Batch, Split

with installed_by("pip install grain"):
    from grain.experimental import ElasticIterator

# The tensors that MaxText's step takes.
_TENSORS = (
    "inputs",
    "inputs_position",
    "inputs_segmentation",
    "targets",
    "targets_position",
    "targets_segmentation",
)


class _Rows(ElasticIterator):  # type: ignore[misc]
    """The batches of one process.

    To MaxText it is an `ElasticIterator`, by which it knows iterators whose state is the same on
    every process: the first process writes it, and every process reads it, however many there are.
    Nothing of grain's own class is used.
    """

    # MaxText looks for the workers of a parent when it ends.
    _parent = None

    def __init__(self, events: Events, split: Split) -> None:
        self._events = events
        self._split: Split = split

    def __iter__(self) -> _Rows:
        return self

    def __next__(self) -> Batch:
        batch, _ = self._events.next_batch(self._split)
        return {name: batch[name] for name in _TENSORS}

    def get_state(self) -> dict[str, Any]:
        return {"cursor": base64.b64encode(self._events.cursor()).decode()}

    def set_state(self, state: dict[str, Any]) -> None:
        self._events.resume(base64.b64decode(state["cursor"]))

    def close(self) -> None:
        self._events.shutdown()


class _Stream:
    """The stream of one process; each pass over it begins anew."""

    _parent = None

    def __init__(self, arguments: dict[str, Any], split: Split) -> None:
        self._arguments = arguments
        self._split: Split = split

    def __iter__(self) -> _Rows:
        return _Rows(Events(**self._arguments), self._split)


def install(
    train_store: Path,
    eval_store: Path | None = None,
    *,
    eval_split: Split = "test",
    **settings: Any,
) -> None:
    """Makes MaxText read token rows where its configuration says `dataset_type: grain`.

    Args:
        train_store: The event store whose train stream is learnt from.
        eval_store: The event store that is evaluated on; default: `train_store`.
        eval_split: The split of `eval_store`.
        settings: Arguments of `headwater.Events`: `seed` (default: `data_shuffle_seed` of MaxText's
            configuration), `packing`, `num_prefetch` and `num_threads`. Ranks, batch size and
            sequence length are MaxText's.

    Raises:
        InvalidArgument: A setting is none of these; or later, when MaxText makes its iterators, its
            configuration does not fit the store.
    """
    known = {"seed", "packing", "num_prefetch", "num_threads"}
    unknown = sorted(settings.keys() - known)
    if unknown:
        raise InvalidArgument(
            f"expected settings among {', '.join(sorted(known))}, found {', '.join(unknown)}; "
            "batch size, sequence length and ranks come from MaxText's configuration"
        )
    from maxtext.input_pipeline import input_pipeline_interface as interface

    def factory(store: Path, split: Split, is_training: bool) -> Any:
        def make(config: Any, mesh: Any, processes: list[int]) -> Any:
            return _iterator(config, mesh, processes, store, split, is_training, settings)

        return make

    interface.make_grain_train_iterator = factory(train_store, "train", True)
    interface.make_grain_eval_iterator = factory(eval_store or train_store, eval_split, False)


def _iterator(
    config: Any,
    mesh: Any,
    processes: list[int],
    store: Path,
    split: Split,
    is_training: bool,
    settings: dict[str, Any],
) -> Any:
    """Returns MaxText's iterator over the batches of this process."""
    import jax
    from maxtext.input_pipeline.multihost_dataloading import MultiHostDataLoadIterator

    if getattr(config, "colocated_python_data_input", False):
        raise NotImplementedError(
            "expected data that is read on each host, found colocated_python_data_input=True; "
            "set it to False"
        )
    name = "global_batch_size_to_load" if is_training else "global_batch_size_to_load_eval"
    rows = getattr(config, name)
    if rows % len(processes):
        raise InvalidArgument(
            f"expected a {name} that {len(processes)} processes can share, found {rows}; change "
            "per_device_batch_size"
        )
    arguments = {"seed": config.data_shuffle_seed} | settings
    arguments |= {
        "path": store,
        "rank": processes.index(jax.process_index()),
        "world_size": len(processes),
        "batch_size": rows // len(processes),
        "sequence_length": config.max_target_length,
    }
    with Events(**(arguments | {"num_prefetch": 0})) as events:
        tokens, count = events.vocabulary_size, events.row_count(split)
    if config.vocab_size < tokens:
        raise InvalidArgument(
            f"expected a vocab_size of at least {tokens}, the tokens of {store}, found "
            f"{config.vocab_size}; set vocab_size={tokens}"
        )
    if count == 0:
        raise InvalidArgument(
            f"expected events in the {split} split of {store}, found none; name another split or "
            "store, or set eval_interval=-1"
        )
    return MultiHostDataLoadIterator(
        _Stream(arguments, split),
        mesh,
        getattr(config, f"generate_padding_batch_{'train' if is_training else 'eval'}"),
        expansion_loading_factor_for_grain=config.expansion_factor_real_data,
    )


def main(argv: list[str] | None = None) -> None:
    """Trains MaxText on an event store."""
    parser = argparse.ArgumentParser(
        prog="python -m headwater.maxtext", description=__doc__.split("\n")[0]
    )
    parser.add_argument("store", help="the event store, from `headwater prepare`")
    parser.add_argument("config", help="MaxText's configuration, such as base.yml")
    parser.add_argument("override", nargs="*", help="settings of MaxText, as key=value")
    parser.add_argument("--eval-store", help="evaluate on this store (default: STORE)")
    parser.add_argument("--no-packing", action="store_true", help="one context a row")
    parser.add_argument(
        "--eval-split",
        choices=("train", "val", "test"),
        default="test",
        help="evaluate on this split (default: test)",
    )
    args = parser.parse_intermixed_args(argv)
    # MaxText asks for files where the type is grain; it opens none of them here.
    ours = {
        "dataset_type": "grain",
        "grain_train_files": args.store,
        "grain_eval_files": args.eval_store or args.store,
    }
    for setting in args.override:
        name, _, value = setting.partition("=")
        if name in ours and value != ours[name]:
            parser.error(f"expected {name}={ours[name]}, found {setting}; leave it out")
    settings = {"packing": not args.no_packing}
    install(args.store, args.eval_store, eval_split=args.eval_split, **settings)
    from maxtext.trainers.pre_train import train

    words = [f"{name}={value}" for name, value in ours.items()]
    train.main([sys.argv[0], args.config, *words, *args.override])


if __name__ == "__main__":
    main()

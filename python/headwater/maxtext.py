"""Trains MaxText on the token rows of an event store: `pip install maxtext` (0.2.5, Python 3.12).

    python -m headwater.maxtext pings.db base.yml run_name=first vocab_size=267 steps=1000

trains as `python -m maxtext.trainers.pre_train.train base.yml ..` does, on token rows. In a program
of your own, `install("pings.db")` before MaxText's `main`. `dataset_type` stays "grain", because
MaxText keeps the position of no other type in its checkpoints: the cursor lies beside the model, and
a run continues with the same batches on any number of processes.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import grain
from grain.experimental import ElasticIterator

from headwater._headwater import InvalidArgument
from headwater.events import Events
from headwater.grain import EventsDataset, SamplerIterator
from headwater.sampler import Batch, Path, Split

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

    An `ElasticIterator` to MaxText, by which it knows iterators whose state is the same on every
    process: the first process writes it, and every process reads it, however many there are.
    """

    # MaxText looks for the workers of a parent when it ends.
    _parent = property(lambda self: None)

    def __init__(self, batches: SamplerIterator) -> None:
        grain.DatasetIterator.__init__(self)
        self._batches = batches

    def __next__(self) -> Batch:
        batch = next(self._batches)
        return {name: batch[name] for name in _TENSORS}

    def get_state(self) -> dict[str, Any]:
        return self._batches.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        self._batches.set_state(state)

    def close(self) -> None:
        self._batches.close()


class _Dataset(EventsDataset):
    """The stream of one process; each pass over it begins anew."""

    def __iter__(self) -> _Rows:  # type: ignore[override]
        return _Rows(super().__iter__())


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
    padding = config.generate_padding_batch_train if is_training else config.generate_padding_batch_eval
    return MultiHostDataLoadIterator(
        _Dataset(arguments, split),
        mesh,
        padding,
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
    args = parser.parse_args(argv)
    install(args.store, args.eval_store, packing=not args.no_packing)
    from maxtext.trainers.pre_train import train

    train.main([sys.argv[0], args.config, *args.override])


if __name__ == "__main__":
    main()

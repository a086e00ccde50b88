"""A relational transformer in JAX, trained on the batches of `headwater.Sampler`.

A run is a folder: its configuration, its checkpoints, its metrics, its report. The same
configuration on the same store gives the same run, also if it was killed and resumed.

Example:
    >>> import confluence
    >>> draft = confluence.init("shop.store", "churn", minutes=12)  # doctest: +SKIP
    >>> run = confluence.train(draft, "runs/1")  # doctest: +SKIP
    >>> run.results.tasks["demo-shop/churn"]["test"]["auroc"]  # doctest: +SKIP
    0.861
    >>> run.predict(customers, at="2024-05-31")  # doctest: +SKIP
    >>> confluence.evaluate("runs/1", splits=["test"])  # doctest: +SKIP
    >>> confluence.predict("runs/1", "churn", [("17", "2024-05-31")])  # doctest: +SKIP
    [Prediction(value='0.307342', null=0.0012, low=None, high=None)]

The modules, from the ground up: `config` is the configuration; `batch` brings the sampler's batches
to the device; `attention`, `structured`, `model` and `loss` are pure functions of the parameters;
`optimizer` updates the parameters; `rollcall` and `parallel` join several processes, which share
what they compile (`compile_keys`), and whose `microbatches` add up to the same bits; `step`
compiles a training step; `feed` makes batches ahead; `checkpoint` saves and restores a run, with
the state of its `patience`, and `orbax_noise` silences Orbax; `evaluation`, `metrics`,
`calibration`, `intervals`, `hiding`, `results`, `report` and `sinks` score and report; `seeds`
reads labels, of which `baselines` and `boosting` make predictions without a model, and `epochs`
advice; `starting` takes the parameters of another run, and `members` averages several; `assembly`
puts these parts together; `drawing` draws a context; `draft` chooses a configuration, for which
`contexts` counts rows and cells, `widths` chooses what each relation brings in, `speed` measures
steps and `pace` chooses how many; `status` is the line on a terminal and the bar in a notebook;
`training`, with `run_folder` and `progress`, `scoring`, and `prediction`, with `frames`, use the
parts; `outputs` writes the files that a user names; `run` is a run as an object; `api` has the
functions of this page; `cli`, `cli_draft`, `cli_inspect` and `cli_predict` are the command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluence.config import Config, load

if TYPE_CHECKING:
    from confluence.api import (
        Baseline,
        Draft,
        Interrupted,
        Prediction,
        Processes,
        Results,
        Run,
        compare_baselines,
        evaluate,
        init,
        predict,
        train,
    )
    from confluence.api import (
        open as open,  # noqa: A004
    )

__all__ = [
    "Baseline",
    "Config",
    "Draft",
    "Interrupted",
    "Prediction",
    "Processes",
    "Results",
    "Run",
    "compare_baselines",
    "evaluate",
    "init",
    "load",
    "predict",
    "train",
]


def __getattr__(name: str) -> Any:
    # Imported on first use: importing JAX takes a second. `open` is not in `__all__`, since a star
    # import must not replace Python's own.
    if name not in (*__all__, "open"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from confluence.compile_cache import use_compile_cache

    # As the command does: `init` compiles the step that `train` takes.
    use_compile_cache()
    from confluence import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "open"})

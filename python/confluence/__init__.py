"""A relational transformer in JAX, trained on the batches of `headwater.Sampler`.

A run is a folder: its configuration, its checkpoints, and `metrics.jsonl`. The same configuration
on the same store is the same run, also when it was killed on the way.

The parts, from the ground up: `config` says what a run is; `batch` brings the sampler's batches to
the device; `attention`, `model` and `loss` are pure functions of parameters; `optimizer` changes
these; `parallel` spreads a step over processes; `feed` makes batches ahead; `checkpoint` keeps a
run; `train`, `evaluate` and `predict` put it all together; `metrics` and `report` tell of it; `cli`
is the command.
"""

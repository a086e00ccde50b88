"""Training steps of a model so small that it compiles at once: sums, masks and microbatches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from confluence import batch, config, microbatches, model, synthetic
from confluence.parallel import Layout
from confluence.step import Program, compute_type

# The place of no masked cell.
NONE = 65535
# Of each head. The last one is for texts.
SIZES = {
    "null": (), "numerical": (), "boolean": (), "timestamp": (15,), "categories": (36,),
    "texts": (32,),
}  # fmt: skip


def initial_params(settings, text_width, seed, *, with_texts):
    assert (text_width, seed) == (32, 5)
    draws = np.random.default_rng(seed)
    return {
        name: jnp.asarray(draws.standard_normal((2, *size)), jnp.float32)
        for name, size in SIZES.items()
        if name != "texts" or with_texts
    }


def heads(params, one, at):
    """Returns for the cells `at` what each head makes of the number of the next cell."""
    given = jnp.take_along_axis(jnp.asarray(one.numbers), at + 1, axis=1)
    return {
        name: jnp.tensordot(jnp.stack([given, jnp.ones_like(given)], axis=-1), of, 1)
        for name, of in params.items()
    }


def predict(params, one, tables, settings, shape):
    found = heads(params, one, jnp.asarray(one.target_position)[:, None])
    found = {name: of[:, 0] for name, of in found.items() if name != "texts"}
    return model.Predictions(**found | {"categories": found["categories"][:, :32]})


def predict_masked(params, one, tables, settings, shape):
    found = heads(params, one, jnp.minimum(one.masked.astype(jnp.int32), 30))
    texts = found.pop("texts", None)
    of_target = predict(params, one, tables, settings, shape)
    return of_target, model.Masked(model.Predictions(**found), texts)


@pytest.fixture(autouse=True)
def _small_model(monkeypatch):
    for of in (initial_params, predict, predict_masked):
        monkeypatch.setattr(model, of.__name__, of)


def program_of(**optimizer):
    settings = config.Config(
        data=config.Data(batch_size=4, sequence_length=34, max_rows=5, mask_share=0.2),
        optimizer=config.Optimizer(steps=20, warmup_steps=0, seed=5, mask_weight=0.5, **optimizer),
    )
    layout = Layout(jax.devices()[:1])
    return Program(settings, *synthetic.vocabulary_and_tables(), layout), settings.data, layout


def made(data, kind=batch.CATEGORICAL, seed=0, **changes):
    return synthetic.batch(data, kind, np.random.default_rng(seed))._replace(**changes)


def leaves(tree):
    """Returns copies, since a step writes over the buffers that it is given."""
    return [np.array(of) for of in jax.tree.leaves(tree)]


def test_matrices_are_narrow_on_accelerators_unless_the_settings_say(monkeypatch):
    for backend, automatic in (("cpu", "float32"), ("gpu", "bfloat16"), ("tpu", "bfloat16")):
        monkeypatch.setattr(jax, "default_backend", lambda backend=backend: backend)
        assert compute_type("auto") == automatic
        assert [compute_type(of) for of in ("float32", "bfloat16")] == ["float32", "bfloat16"]


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_inference_uses_a_running_mean_if_configured(share):
    program, data, layout = program_of(microbatches=0, mean_share=share)
    state = program.initial()
    mean = leaves(state.params)
    for step in range(6):
        one = layout.to_devices(made(data, seed=step))
        state, _ = program.step(state, one, layout.flag_to_devices(False))
        # The first steps average over fewer steps.
        kept = min(share, (1 + step) / (10 + step))
        mean = [
            kept * old + (1 - kept) * new
            for old, new in zip(mean, leaves(state.params), strict=True)
        ]
        for ours, theirs in zip(leaves(state.inference_params), mean, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)
    assert bool(state.mean) == bool(share)


def test_what_is_compiled_for_a_batch_is_the_step():
    program, data, layout = program_of(microbatches=0)
    given = program.initial(), layout.to_devices(made(data)), layout.flag_to_devices(False)
    compiled = program.compiled_step(*given)
    _, metrics = compiled(*given, program._tables, program._length)
    _, wanted = program.step(program.initial(), *given[1:])
    assert float(metrics.loss) == float(wanted.loss)
    assert program.compiled_steps == 1


@pytest.mark.parametrize("count", [0, 2])
def test_a_step_is_skipped_if_its_loss_alone_is_not_finite(count):
    """The loss of a number is linear, so its slope is finite at any error."""
    program, data, layout = program_of(microbatches=count, mean_share=0.3)
    one, stop = made(data, batch.NUMERICAL), layout.flag_to_devices(False)
    numbers = one.numbers.copy()
    numbers[1, 0] = np.inf
    spoilt = one._replace(numbers=numbers)
    state = program.initial()
    before = leaves(state.params)
    for number, each in enumerate((spoilt, one, spoilt)):
        given = microbatches.split(each, count, layout) if count else layout.to_devices(each)
        state, metrics = program.step(state, given, stop)
        assert np.isfinite(metrics.gradient_norm)
        assert np.isfinite(metrics.loss) == (each is one)
        assert int(metrics.skipped) == int(state.skipped) == (number + 2) // 2
        assert int(state.step) == number + 1
        after = leaves(state.params)
        is_same = all(np.array_equal(of, old) for of, old in zip(after, before, strict=True))
        assert is_same == (each is spoilt)
        before = after


@pytest.mark.parametrize("count", [1, 2])
def test_predictions_of_microbatches_are_in_the_order_of_the_batch(count):
    program, data, layout = program_of(microbatches=count)
    whole, params = made(data), program.initial().params
    ours = program.predict(params, microbatches.split(whole, count, layout))
    theirs = program.predict(params, layout.to_devices(whole))
    for name, wanted in theirs._asdict().items():
        np.testing.assert_allclose(getattr(ours, name), wanted, rtol=1e-5, err_msg=name)
    assert list(ours.row) == [0, 1, 2, 3]
    assert len({float(of) for of in ours.value}) > 1


def test_p9_masked_cells_weigh_in_microbatches_as_in_the_batch():
    """Also in a microbatch without any, and in one whose context does not count."""
    program, data, layout = program_of(microbatches=4)
    whole = made(
        data,
        masked=np.array([[8, 9, 17], [10, 16, NONE], [11, 12, 14], [NONE] * 3], np.uint16),
        weights=np.array([1, 1, 0, 1], np.float32),
    )
    on_device, stop = layout.to_devices(whole), layout.flag_to_devices(True)
    before = program.initial()
    scored = program.score_masked(before.params, on_device)
    after, wanted = program.step(before, on_device, stop)
    assert all(of.is_deleted() for of in jax.tree.leaves(before))
    assert np.sum(wanted.masked.counts) == 5
    np.testing.assert_allclose(scored.sums, wanted.masked.sums, rtol=1e-5)
    for of_count, count in ((program, 4), (program_of(microbatches=1)[0], 1)):
        parts = microbatches.split(whole, count, layout)
        before = of_count.initial()
        found = of_count.score_masked(before.params, parts)
        np.testing.assert_allclose(found.sums, scored.sums, rtol=1e-5)
        state, found = of_count.step(before, parts, stop)
        assert all(of.is_deleted() for of in jax.tree.leaves(before))
        assert found.stop_requested == wanted.stop_requested == 1
        np.testing.assert_array_equal(found.masked.counts, wanted.masked.counts)
        for name in ("loss", "gradient_norm"):
            assert float(getattr(found, name)) == pytest.approx(float(getattr(wanted, name)))
        for ours, theirs in zip(leaves(state), leaves(after), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)

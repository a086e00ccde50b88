"""The steps and evaluations of a run, worked out by hand."""

import pytest

from confluence import pace
from confluence.speed import Speed

COUNTS = {
    "shop/churn": {"train": 3200, "val": 330, "test": 640},
    "shop/spend": {"train": 1600, "val": 1, "test": 33},
}
SPEED = Speed(10, compile_again_seconds=20, step_seconds=0.5, predict_seconds=0.1)


def test_a_long_run_has_four_epochs_and_whole_evaluations():
    found = pace.choose(1000, 50, SPEED, COUNTS, 32)
    # 34 batches of val and test take 3.4 s, beside the 70 s before the first step, and the nine
    # evaluations of 12 batches 10.8 s.
    assert found._asdict() == {
        "steps": 600,
        "warmup_steps": 50,
        "evaluate_every": 75,
        "evaluate_batches": 0,
        "checkpoint_every": 60,
        "patience": 4,
        "epochs": 4.0,
        "minutes": pytest.approx((70 + 3.4 + 10.8 + 300) / 0.95 / 60),
        "last_evaluation_minutes": pytest.approx(3.4 / 60),
        "wanted_minutes": pytest.approx(1000 / 60),
        "epoch_minutes": pytest.approx((70 + 3.4 + 10.8 + 75) / 0.95 / 60),
        "epoch_steps": 150.0,
    }
    assert found.lines(SPEED) == [
        "This machine takes 0.5 s for a step, 0.1 s for a batch of an evaluation, 10 s to compile.",
        "On this machine 600 steps are 4 epochs (at most 4, or 500 steps if they are more), about "
        "6.7 minutes in all.",
    ]


def test_slow_steps_are_as_many_as_fit():
    counts = {**COUNTS, "shop/churn": {"train": 3200, "val": 3200, "test": 640}}
    found = pace.choose(1000, 50, Speed(10, 20, 2.0, 0.5), counts, 32)
    # 123 batches of val and test take 61.5 s, so 818.5 s are left. A batch takes so long that nine
    # evaluations of 16 batches of each task, 144 s, are the least; 337 steps fit into the rest.
    assert (found.steps, found.evaluate_every, found.evaluate_batches) == (336, 42, 16)
    assert (found.warmup_steps, found.checkpoint_every) == (50, 15)
    assert found.minutes == pytest.approx((131.5 + 144 + 672) / 0.95 / 60)


def test_evaluations_of_a_part_take_a_share_of_the_time():
    counts = {**COUNTS, "shop/churn": {"train": 3200, "val": 6400, "test": 640}}
    found = pace.choose(1000, 50, SPEED, counts, 32)
    # 22.3 s are for the last evaluation, 857.7 s are left, and 15 % of them for nine evaluations
    # of 142 batches, 71 for each task.
    assert found.evaluate_batches == 71
    assert found.minutes == pytest.approx((92.3 + 127.8 + 300) / 0.95 / 60)


def test_too_little_time_is_for_a_few_steps():
    found = pace.choose(60, 50, Speed(10, 20, 40.0, 0.1), COUNTS, 32)
    assert (found.steps, found.evaluate_every, found.checkpoint_every) == (16, 2, 1)
    assert found.warmup_steps == 3
    assert found.minutes > 1
    assert (
        "On this machine 1 minute is too few for one epoch, which takes" in (found.lines(SPEED)[2])
    )


def test_one_minute_is_a_minute():
    assert "about 1 minute in all" in paced(minutes=1.02).lines(SPEED)[1]
    assert "about 1.1 minutes in all" in paced(minutes=1.1).lines(SPEED)[1]
    assert pace.in_minutes(0.1) == "0.1 minutes"
    assert pace.in_minutes(10_080, ",g") == "10,080 minutes"
    assert (
        paced(last_evaluation_minutes=1, wanted_minutes=1)
        .lines(SPEED)[-1]
        .endswith("takes 1 minute of 1.")
    )


def test_a_run_of_few_seeds_has_some_steps():
    counts = {"shop/churn": {"train": 320, "val": 32, "test": 32}}
    assert pace.choose(1000, 50, SPEED, counts, 32).steps == 496


def paced(**changes):
    return pace.choose(1000, 50, SPEED, COUNTS, 32)._replace(**changes)


@pytest.mark.parametrize(
    ("epoch_steps", "sensible"),
    # An epoch, 50 steps, a tenth of an epoch, as many as few seeds get.
    [(10.5, 11), (300, 50), (1234, 124), (9000, 500)],
)
def test_the_least_sensible_steps_depend_on_the_epoch(epoch_steps, sensible):
    found = paced(epoch_steps=epoch_steps, steps=sensible)
    assert found.sensible_steps == sensible
    assert not found.is_too_short
    assert found._replace(steps=sensible - 1).is_too_short


def test_warnings_are_of_less_than_an_epoch_and_of_a_long_last_evaluation():
    def warnings(**changes):
        return paced(wanted_minutes=10, **changes).lines(SPEED)[2:]

    assert warnings(epochs=1, last_evaluation_minutes=5) == []
    assert len(warnings(epochs=0.9)) == 1
    (line,) = warnings(last_evaluation_minutes=6)
    assert line.endswith("the last evaluation of val and test takes 6 minutes of 10.")


@pytest.mark.parametrize(
    ("start", "least", "enough"),
    # A quarter more each time, rounded up before it is tried.
    [(2, 5, 5), (2, 2, 2), (1, 1, 1), (1, 1.2, 2), (0.1, 0.3, 0.3), (2, 1000, 60), (2, 59, 60)],
)
def test_enough_minutes_are_the_first_that_are_not_too_few(start, least, enough):
    def choose_for(minutes):
        return paced(steps=500 if minutes >= least else 1)

    assert pace.enough_minutes(start, choose_for, 60) == enough

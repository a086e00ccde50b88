"""`PartitionedJob` and `SumJob` of `headwater.reduce`: trees over parts, and over any arrays."""

from __future__ import annotations

import itertools
import pickle
import random
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headwater
from headwater.reduce import (
    PartitionedJob,
    PartWorker,
    Reduction,
    SumJob,
    TopJob,
    Worker,
    fold,
    merge,
)
from plain_tree import plain_sum
from test_folds import CHUNK_ROWS, JOBS, damage_is_refused, job, numbers, one_call, others, second

LENGTHS = (200, 0, 64, 1, 130, 0, 333)


def parts_of(lengths=LENGTHS):
    """The first row and the end of each part."""
    ends = list(itertools.accumulate(lengths))
    return list(zip([0, *ends], ends, strict=False))


def partitioned(statistic, parts, **changes):
    return PartitionedJob(job(statistic, rows=None, **changes), parts)


def folded(of, portions):
    reduction = Reduction(of)
    for portion in portions:
        reduction.receive(portion)
    return reduction


def portions_of(of, statistic, rows, y, ends):
    return [
        fold(of, part, rows[a:b], **others(statistic, y, a, b)) for part, (a, b) in enumerate(ends)
    ]


@pytest.mark.parametrize("statistic", JOBS)
def test_p1_one_part_has_the_digest_of_its_rows(statistic):
    rows, y = numbers(), second()
    for count in (1, 63, 64, 65, 640, 1003):
        of = partitioned(statistic, 1)
        (portion,) = portions_of(of, statistic, rows, y, [(0, count)])
        alone = one_call(statistic, rows[:count], y[:count])
        assert folded(of, [portion]).digest == alone.digest


@pytest.mark.parametrize("statistic", JOBS)
def test_p1_parts_give_the_result_of_all_rows(statistic):
    ends = parts_of()
    rows, y = numbers(rows=ends[-1][1]), second(ends[-1][1])
    of = partitioned(statistic, len(ends))
    reduction = folded(of, portions_of(of, statistic, rows, y, ends))
    whole = one_call(statistic, rows, y)
    result = reduction.result()
    if statistic in ("exact", "histogram", "exponents", "distinct"):
        assert reduction.digest == whole.digest
        assert result.tobytes() == whole.value.tobytes()
    elif statistic == "top":
        starts = np.array([start for start, _ in ends])
        assert (result["row"] + starts[result["part"].astype(int)] == whole.value["row"]).all()
        assert (result["value"] == whole.value["value"]).all()
    elif statistic == "moments":
        assert (result["finite"] == whole.value["finite"]).all()
        assert np.allclose(result["mean"], whole.value["mean"])
    else:
        each = [one_call(statistic, rows[a:b], y[a:b]).value if a < b else 0 for a, b in ends]
        with np.errstate(invalid="ignore"):
            expected = plain_sum(each)
        # There is one NaN.
        expected[np.isnan(expected)] = np.nan
        assert result.tobytes() == expected.tobytes()


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(JOBS)),
    st.lists(st.integers(0, 150), min_size=1, max_size=9),
    st.lists(st.integers(1, 90), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_p1_p4_pieces_and_order_of_parts_change_no_bit(statistic, lengths, pieces, shuffle):
    ends = parts_of(lengths)
    rows, y = numbers(rows=max(1, ends[-1][1])), second(max(1, ends[-1][1]))
    of = partitioned(statistic, len(ends))
    expected = merge(of, *portions_of(of, statistic, rows, y, ends))
    shipped = []
    for part, (start, end) in enumerate(ends):
        worker, sizes = PartWorker(of, part, threads=1), itertools.cycle(pieces)
        while start + worker.rows < end:
            at = start + worker.rows
            stop = min(end, at + next(sizes))
            worker.push(rows[at:stop], **others(statistic, y, at, stop))
            worker = pickle.loads(pickle.dumps(worker))
            assert start + worker.rows == stop
        shipped.append(worker.portion())
        assert worker.portion() == shipped[-1]
    shipped += shipped[::2]
    shuffle.shuffle(shipped)
    cut = len(shipped) // 2
    assert merge(of, merge(of, *shipped[cut:]), merge(of, *shipped[:cut])) == expected


def test_p2_a_fold_of_parts_goes_on_from_a_file(tmp_path):
    ends = parts_of()
    rows, y = numbers(rows=ends[-1][1]), second(ends[-1][1])
    of = partitioned("moments", len(ends))
    portions = portions_of(of, "moments", rows, y, ends)
    first = folded(of, portions[2:4])
    first.save(tmp_path / "kept")
    again = Reduction(of)
    again.receive((tmp_path / "kept").read_bytes())
    assert again.missing() == [(0, 2), (4, 7)]
    with pytest.raises(headwater.InvalidArgument, match="parts 0 to 1 are missing"):
        again.result()
    for start, end in again.missing():
        for part in range(start, end):
            again.receive(portions[part])
    assert again.digest == folded(of, portions).digest
    assert again.job == of


def test_p6_a_part_that_arrives_with_other_rows_is_refused():
    of, rows = partitioned("moments", 3), numbers()
    reduction = folded(of, [fold(of, 1, rows[:100])])
    before = reduction.portion()
    with pytest.raises(headwater.Corrupt, match="the sum of part 1 arrived twice, and the two"):
        reduction.receive(fold(of, 1, rows[:101]))
    worker = PartWorker(of, 2)
    worker.push(rows[:100])
    early = worker.portion()
    worker.push(rows[100:200])
    with pytest.raises(headwater.Corrupt, match="part 2"):
        merge(of, early, worker.portion())
    assert reduction.portion() == before


def test_p6_portions_of_other_parts_are_refused_by_setting():
    of, rows = partitioned("moments", 3), numbers()
    portion = fold(of, 0, rows)
    for other, words in [
        (PartitionedJob(of.job, 4), '"parts" was 3 and is now 4'),
        (partitioned("moments", 3, chunk_rows=65), '"chunk_rows" was 64 and is now 65'),
        (partitioned("moments", 3, data="other"), '"data" was "rows of a test"'),
        (partitioned("exponents", 3), '"statistic" was "moments"'),
        (job("moments"), '"parts" was 3 and is no longer there'),
    ]:
        with pytest.raises(headwater.PlanMismatch, match=words):
            merge(other, portion)
    damage_is_refused(of, portion, 53)


def test_invalid_parts_are_named():
    of, rows = partitioned("gram", 3), numbers()
    for part, words in [
        (3, "expected a part below 3, found 3; set the number of parts"),
        (-1, "part: expected a number from 0 to"),
        ("0", "part: "),
    ]:
        with pytest.raises(headwater.InvalidArgument, match=words):
            PartWorker(of, part)
    for inner, parts, kind, words in [
        (job("gram"), 3, headwater.InvalidArgument, "with rows=None, found GramJob"),
        ("gram", 3, headwater.InvalidArgument, "with rows=None, found 'gram'"),
        (of.job, -1, headwater.InvalidArgument, "parts: expected a number"),
        (of.job, None, headwater.InvalidArgument, "expected a job of rows or of parts"),
        (of.job, 1 << 25, headwater.LimitExceeded, "at most 2\\^24 parts"),
    ]:
        with pytest.raises(kind, match=words):
            PartitionedJob(inner, parts)
    with pytest.raises(headwater.InvalidArgument, match="at least 1 row, found 0"):
        partitioned("gram", 3, chunk_rows=0)
    with pytest.raises(headwater.InvalidArgument, match="make a PartitionedJob of a job"):
        Worker(of.job)
    with pytest.raises(headwater.InvalidArgument, match="found PartitionedJob; make a PartWorker"):
        Worker(of)
    with pytest.raises(headwater.InvalidArgument, match="expected a PartitionedJob, found GramJob"):
        PartWorker(job("gram"), 0)
    worker = PartWorker(of, 0)
    for wrong, words in [
        (rows.astype(np.float32), "expected rows of float64 as in the job, found float32"),
        (rows[:, :2], "3 columns of f64 as in the job, found 2"),
        (np.ma.masked_invalid(rows), "found a masked array"),
    ]:
        with pytest.raises(headwater.InvalidArgument, match=words):
            worker.push(wrong)
    assert worker.rows == 0


def test_rows_of_equal_numbers_are_in_the_order_of_parts():
    of = PartitionedJob(TopJob(None, 1, "ties", 2, "float64", column=0, count=4), 3)
    portions = [fold(of, part, np.array([[1.0], [2.0], [2.0]])) for part in range(3)]
    ranked = folded(of, portions[::-1]).result()
    assert ranked.tolist() == [(2.0, 0, 1), (2.0, 0, 2), (2.0, 1, 1), (2.0, 1, 2)]


SHAPES = {"loss": (), "fisher": (3, 2), "empty": (0,)}
WIDTHS = {"loss": np.float64, "fisher": np.float32, "empty": np.float64}


def leaves_of(count, seed=3):
    drawn = np.random.default_rng(seed)

    def array(name):
        scale = 10.0 ** drawn.integers(-6, 6)
        return (drawn.standard_normal(SHAPES[name]) * scale).astype(WIDTHS[name])

    return [{name: np.asarray(array(name)) for name in SHAPES} for _ in range(count)]


def sums(leaves=11, data="losses of a test"):
    return SumJob(leaves, leaves_of(1)[0], data)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.randoms(use_true_random=False))
def test_p1_p4_sums_are_those_of_the_tree_in_any_order(count, shuffle):
    of, leaves = sums(count), leaves_of(count)
    portions = [fold(of, number, leaf) for number, leaf in enumerate(leaves)]
    whole = merge(of, *portions)
    shuffled = [*portions, *portions[::3]]
    shuffle.shuffle(shuffled)
    cut = len(shuffled) // 2
    assert merge(of, merge(of, *shuffled[cut:]), merge(of, *shuffled[:cut])) == whole
    found = folded(of, [whole]).sums()
    for name in SHAPES:
        expected = plain_sum([leaf[name] for leaf in leaves])
        assert found[name].dtype == WIDTHS[name]
        assert found[name].shape == SHAPES[name]
        assert found[name].tobytes() == np.asarray(expected).tobytes(), name


def test_sums_have_one_nan_and_keep_infinities_and_subnormals():
    of = SumJob(2, {"a": ("float32", (4,)), "b": (np.float64, (4,))}, "odd numbers")
    left = [np.nan, np.inf, -np.inf, 1e-45], [-np.nan, np.inf, -np.inf, 5e-324]
    right = [1.0, -np.inf, -np.inf, 1e-45], [1.0, -np.inf, -np.inf, 5e-324]
    leaves = [{"a": np.array(a, np.float32), "b": np.array(b)} for a, b in (left, right)]
    found = folded(of, [fold(of, number, leaf) for number, leaf in enumerate(leaves)]).sums()
    # Processors differ in the NaN of infinity minus infinity.
    assert found["a"].view(np.uint32).tolist() == [0x7FC00000, 0x7FC00000, 0xFF800000, 2]
    nan, infinity = 0x7FF8 << 48, 0xFFF0 << 48
    assert found["b"].view(np.uint64).tolist() == [nan, nan, infinity, 2]


def test_a_gpus_own_grams_are_added_as_the_tree_does():
    rows = np.random.default_rng(8).standard_normal((1003, 5)).astype(np.float32)
    chunks = [rows[start : start + CHUNK_ROWS] for start in range(0, 1003, CHUNK_ROWS)]
    grams = [chunk.T @ chunk for chunk in chunks]
    of = SumJob(len(grams), {"gram": grams[0]}, "grams")
    portions = [fold(of, number, {"gram": gram}) for number, gram in enumerate(grams)]
    random.Random(3).shuffle(portions)
    reduction = folded(of, portions)
    assert reduction.sums()["gram"].tobytes() == plain_sum(grams).tobytes()
    assert pickle.loads(cloudpickle.dumps(reduction)).digest == reduction.digest
    assert pickle.loads(pickle.dumps(of)) == of


def test_p2_p6_sums_go_on_and_refuse_what_does_not_fit(tmp_path):
    of, leaves = sums(), leaves_of(11)
    reduction = folded(of, [fold(of, number, leaves[number]) for number in (0, 1, 5)])
    reduction.save(tmp_path / "kept")
    again = folded(of, [(tmp_path / "kept").read_bytes()])
    assert again.missing() == [(2, 5), (6, 11)]
    with pytest.raises(headwater.InvalidArgument, match="not complete: leaves 2 to 4 are missing"):
        again.sums()
    other = leaves[5] | {"loss": np.float64(1)}
    with pytest.raises(headwater.Corrupt, match="the sum of leaf 5 arrived twice"):
        again.receive(fold(of, 5, other))
    # The order of the arrays does not matter, neither in a leaf nor in a job.
    other_order = SumJob(11, dict(reversed(leaves[5].items())), of.data)
    assert (other_order, hash(other_order)) == (of, hash(of))
    assert merge(other_order, fold(of, 3, leaves[3])) == fold(other_order, 3, leaves[3])
    backward = dict(reversed(leaves[5].items()))
    assert again.receive(fold(of, 5, backward)) == 0
    portion = fold(of, 2, leaves[2])
    for changed, words in [
        (sums(12), '"leaves" was 11 and is now 12'),
        (sums(data="other"), '"data" was "losses of a test" and is now "other"'),
        (SumJob(11, {"loss": np.zeros(())}, "losses of a test"), '"arrays" was'),
        (job("moments"), '"statistic" was "sums" and is now "moments"'),
    ]:
        with pytest.raises(headwater.PlanMismatch, match=words):
            merge(changed, portion)
    damage_is_refused(of, portion, 7)


def test_the_golden_portion_of_sums_is_that_of_its_job():
    golden = Path(__file__).parents[2] / "checkpoints" / "portion-v3-sums.portion"
    of = SumJob(11, {"loss": np.zeros(()), "grad": np.zeros(2, np.float32)}, "leaves")
    reduction = folded(of, [golden.read_bytes()])
    assert reduction.missing() == [(4, 5), (8, 10)]


def test_leaves_of_another_form_are_refused():
    of, good = sums(), leaves_of(1)[0]
    for leaf, words in [
        (
            {"loss": good["loss"]},
            r"the arrays \['empty', 'fisher', 'loss'\] by name, .* \['loss'\]",
        ),
        ([good["loss"]], "as in the job, found list"),
        (good | {"more": good["loss"]}, "found .*'more'"),
        (good | {1: good["loss"]}, "found .*, 1]"),
        (good | {"loss": np.float32(1)}, r"loss of float64 \[\] as in the job, found float32 \[\]"),
        (
            good | {"fisher": np.zeros((2, 3), np.float32)},
            r"float32 \[3, 2\] .*, found .* \[2, 3\]",
        ),
        (good | {"fisher": good["fisher"].astype(">f4")}, "found >f4"),
        (good | {"fisher": np.ma.array(good["fisher"])}, "found a masked array"),
    ]:
        with pytest.raises(headwater.InvalidArgument, match=words):
            fold(of, 0, leaf)
    for number, words in [(11, "a leaf below 11, found 11"), (-1, "leaf: expected"), ("a", "leaf")]:
        with pytest.raises(headwater.InvalidArgument, match=words):
            fold(of, number, good)
    for arrays, words in [
        ({}, "at least one array, found none"),
        ({"a": np.zeros(2, int)}, 'the dtype of a to be "float64" or "float32", found "int64"'),
        ([np.zeros(2)], "by their names, found list"),
        ({"a": ("float64", (-1,))}, "expected a as an array"),
        ({"a": ("float", "wide")}, "expected a as an array"),
        ({"a": ("number", (1,))}, "expected a as an array"),
        ({1: np.zeros(2)}, "names that are text, found 1; name them"),
    ]:
        with pytest.raises(headwater.InvalidArgument, match=words):
            SumJob(3, arrays, "x")
    with pytest.raises(headwater.LimitExceeded, match="fold them in several jobs"):
        SumJob(3, {"a": ("float64", (1 << 40,))}, "x")
    with pytest.raises(headwater.InvalidArgument, match="found a SumJob; call `sums`"):
        Reduction(of).result()
    with pytest.raises(headwater.InvalidArgument, match="found a MomentsJob; call `result`"):
        Reduction(job("moments")).sums()
    with pytest.raises(headwater.InvalidArgument, match="make a PartWorker"):
        Worker(of)

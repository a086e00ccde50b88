"""The jobs of `headwater.reduce`: one for each statistic, with the form of its result."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from headwater._headwater import InvalidArgument, ReductionCore

if TYPE_CHECKING:
    from headwater._reduce_workers import Reduction

Dtype = Literal["float64", "float32", "float16", "bfloat16"]
Sums = Literal["f64", "f32x128"]

COUNT, NUMBER = np.dtype("<u8"), np.dtype("<f8")
# What a partial has for each column, as fold/FORMAT.md says.
MOMENT_SUMS = np.dtype(
    [
        ("nulls", COUNT),
        ("nans", COUNT),
        ("negative_infinities", COUNT),
        ("positive_infinities", COUNT),
        ("min", NUMBER),
        ("max", NUMBER),
        ("power_sums", NUMBER, 4),
    ]
)
EXACT_COUNTS = ("nulls", "nans", "negative_infinities", "positive_infinities", "finite")
EXACT_FIGURES = ("sum", "mean", "sum_of_squares", "variance", "std")
MOMENT_FIGURES = ("shift", "mean", "variance", "std", "skewness", "kurtosis")
OF_SIGN = np.dtype(
    [("zeros", COUNT), ("subnormals", COUNT), ("exponents", COUNT, 2046), ("infinities", COUNT)]
)
EXPONENTS = np.dtype(
    [("nulls", COUNT), ("nans", COUNT), ("positive", OF_SIGN), ("negative", OF_SIGN)]
)
# The bits of the number of a row within its part; the number of the part is above them.
PART_ROWS_BITS = 38
RANKED_ROW = np.dtype([("value", NUMBER), ("row", COUNT)])


@dataclasses.dataclass(frozen=True)
class Job:
    """The plan of a statistic: all settings that determine its bits.

    It has the fields of every job, which `GramJob` describes.
    """

    rows: int | None
    columns: int
    data: str
    chunk_rows: int = 4096
    dtype: Dtype = "float32"

    statistic: ClassVar[str]

    def __post_init__(self) -> None:
        if type(self) is Job:
            raise InvalidArgument("expected the job of a statistic, such as GramJob, found Job")
        # A PartitionedJob has the number of parts; to check the rest, any will do.
        ReductionCore(self._fields() | ({"parts": 1} if self.rows is None else {}))

    def _fields(self) -> dict[str, Any]:
        # By name: a job that a version with fewer fields pickled has their defaults.
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {"statistic": self.statistic, "parts": None, **fields}

    def _others(self) -> dict[str, tuple[str, int]]:
        """Returns the types and columns of the arrays beside the rows, by name."""
        return {}

    def _arrays(
        self, rows: npt.ArrayLike, others: dict[str, npt.ArrayLike | None]
    ) -> list[npt.NDArray[np.uint8]]:
        """Returns the rows of each array of the job as bytes."""
        arrays = [_as_bytes("rows", rows, self.dtype, self.columns)]
        wanted = self._others()
        for name, array in others.items():
            if array is not None and name not in wanted:
                raise InvalidArgument(
                    f"expected no {name}, because the job has none, found "
                    f"{type(array).__name__}; leave it out, or make a job that has it"
                )
            if array is None and name in wanted:
                raise InvalidArgument(
                    f"expected {name} beside the rows, as in the job, found none; give {name}=..., "
                    "or make a job without it"
                )
            if array is not None:
                arrays.append(_as_bytes(name, array, *wanted[name]))
        counts = [len(array) for array in arrays]
        if counts != counts[:1] * len(counts):
            raise InvalidArgument(
                f"expected as many rows in each array as the {counts[0]} of the first, found "
                f"{counts[1:]}"
            )
        return arrays

    def _result(self, core: ReductionCore) -> npt.NDArray[Any]:
        """Returns the result of a complete fold."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class GramJob(Job):
    """The plan of a Gram matrix: all settings that determine its bits.

    Args:
        rows: The number of rows; None for the job of a `PartitionedJob`.
        columns: k, the number of columns.
        data: A name for these rows. Portions of rows with another name are refused; the caller
            makes sure that a name always means the same rows.
        chunk_rows: The number of rows in a chunk. The rows of a chunk are summed in order, and a
            fixed tree adds the chunks.
        dtype: The type of the numbers. Products and sums have 64 bits for every type, unless `sums`
            says otherwise.
        y_columns: The number of columns of Y, a second array with the same rows, whose columns
            follow those of X. Default: there is none.
        y_dtype: The type of Y's numbers.
        weighted: Whether each row has a weight, of float64, by which its products are multiplied.
        ones: Whether a column of ones follows X. The Gram of [X | 1 | Y] has the Gram of X, the
            sums of the columns, the number of rows, the cross products and the Gram of Y.
        reject_nonfinite: Whether a NaN or an infinity is an error that names its row and column.
            By default they go into the sums.
        sums: How the products of a chunk are summed. "f64": in 64 bits. "f32x128": in 32 bits over
            each 128 rows, the sums of which are added in 64 bits; in about half the time, with an
            error of 1e-8 to 2e-7 of the product of the lengths of both columns where numbers vary,
            some 2e-6 where a column has one or few values, and never above 7.7e-6. It takes
            float32, float16 and bfloat16, and no weights; products, and sums over 128 rows, beyond
            the range of float32 become infinite, and products below it 0. Another choice gives
            other bits.

    Raises:
        InvalidArgument: An argument is not valid.
        LimitExceeded: There are too many rows or columns, or the name is too long.
    """

    y_columns: int | None = dataclasses.field(default=None, kw_only=True)
    y_dtype: Dtype = dataclasses.field(default="float32", kw_only=True)
    weighted: bool = dataclasses.field(default=False, kw_only=True)
    ones: bool = dataclasses.field(default=False, kw_only=True)
    reject_nonfinite: bool = dataclasses.field(default=False, kw_only=True)
    sums: Sums = dataclasses.field(default="f64", kw_only=True)

    statistic = "gram"

    def _others(self) -> dict[str, tuple[str, int]]:
        others: dict[str, tuple[str, int]] = {}
        if self.y_columns is not None:
            others["y"] = (self.y_dtype, self.y_columns)
        if self.weighted:
            others["weights"] = ("float64", 1)
        return others

    def _result(self, core: ReductionCore) -> npt.NDArray[np.float64]:
        columns = self.columns + self.ones + (self.y_columns or 0)
        return core.figures().reshape(columns, columns)


@dataclasses.dataclass(frozen=True)
class CrossJob(Job):
    """The plan of the cross products X^T Y of two arrays with the same rows.

    The result is float64 [k, y_columns].

    Args:
        rows, columns, data, chunk_rows, dtype: As for `GramJob`, of X; `data` names both arrays.
        y_columns: The number of columns of Y.
        y_dtype: The type of Y's numbers.
        reject_nonfinite: As for `GramJob`, in X and Y.
        sums: As for `GramJob`.
    """

    y_columns: int = dataclasses.field(kw_only=True)
    y_dtype: Dtype = dataclasses.field(default="float32", kw_only=True)
    reject_nonfinite: bool = dataclasses.field(default=False, kw_only=True)
    sums: Sums = dataclasses.field(default="f64", kw_only=True)

    statistic = "cross"

    def _others(self) -> dict[str, tuple[str, int]]:
        return {"y": (self.y_dtype, self.y_columns)}

    def _result(self, core: ReductionCore) -> npt.NDArray[np.float64]:
        sums = np.frombuffer(core.whole(), NUMBER)
        return sums.reshape(self.columns, -1).copy()


@dataclasses.dataclass(frozen=True)
class MomentsJob(Job):
    """The plan of count, range, mean, deviation, skewness and kurtosis of each column.

    The result has an element for each column, with the fields `nulls`, `nans`,
    `negative_infinities`, `positive_infinities`, `finite` (counts), `min`, `max` (NaN without
    numbers), `power_sums` [4] (of the differences from the shift), `shift`, `mean`, `variance`,
    `std`, `skewness` and `kurtosis`. The last five are of the finite numbers, and NaN where the
    sums do not determine them: the shift is too far from the mean.

    Args:
        rows, columns, data, chunk_rows, dtype: As for `GramJob`.
        shifts: A number near the mean, for all columns or for each: `shifts(rows)` has those of the
            command. Other numbers give other bits.
    """

    shifts: float | Sequence[float] = dataclasses.field(default=0.0, kw_only=True)

    statistic = "moments"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shifts", _numbers("shifts", self.shifts))
        super().__post_init__()

    def _result(self, core: ReductionCore) -> npt.NDArray[Any]:
        whole = core.whole()
        sums = np.frombuffer(whole, MOMENT_SUMS, offset=8)
        fields = [
            *MOMENT_SUMS.descr,
            ("finite", COUNT),
            *((name, NUMBER) for name in MOMENT_FIGURES),
        ]
        moments = np.empty(self.columns, fields)
        for name in MOMENT_SUMS.names or ():
            moments[name] = sums[name]
        for name, figures in zip(MOMENT_FIGURES, core.figures().reshape(-1, 6).T, strict=True):
            moments[name] = figures
        counts = ("nulls", "nans", "negative_infinities", "positive_infinities")
        rows = np.frombuffer(whole, COUNT, 1)
        moments["finite"] = rows - sum(sums[name] for name in counts)
        for name in ("min", "max"):
            moments[name][sums["min"] > sums["max"]] = np.nan
        return moments


@dataclasses.dataclass(frozen=True)
class ExactJob(Job):
    """The plan of sum, mean and deviation of each column, each rounded once from exact sums.

    The result has an element for each column, with the fields `nulls`, `nans`,
    `negative_infinities`, `positive_infinities`, `finite` (counts), and of the finite numbers
    `sum`, `mean`, `sum_of_squares`, `variance` and `std` (of the population). They are the same for
    any order of the rows; mean, variance and deviation of no number are NaN.

    Args:
        rows, columns, data, chunk_rows, dtype: As for `GramJob`.
    """

    statistic = "exact"

    def _result(self, core: ReductionCore) -> npt.NDArray[Any]:
        # Two integers of many words follow the counts of each column.
        counts = np.frombuffer(core.whole(), COUNT).reshape(self.columns, -1)
        figures = core.figures().reshape(self.columns, -1)
        fields = [(name, COUNT) for name in EXACT_COUNTS]
        exact = np.empty(self.columns, [*fields, *((name, NUMBER) for name in EXACT_FIGURES)])
        for place, name in enumerate(EXACT_COUNTS):
            exact[name] = counts[:, place]
        for place, name in enumerate(EXACT_FIGURES):
            exact[name] = figures[:, place]
        return exact


@dataclasses.dataclass(frozen=True)
class HistogramJob(Job):
    """The plan of how many numbers of each column lie between given edges.

    The result has an element for each column, with the counts `below` the first edge, `between` [m]
    each edge and the next, `above` (from the last edge on), `nans` and `nulls`. They are the same
    for any order of the rows.

    Args:
        rows, columns, data, chunk_rows, dtype: As for `GramJob`.
        edges: The edges of the bins of every column, in increasing order.
    """

    edges: Sequence[float] = dataclasses.field(kw_only=True)

    statistic = "histogram"

    def __post_init__(self) -> None:
        if isinstance(self.edges, numbers.Real):
            raise InvalidArgument(
                f"expected edges as a list of numbers, found {self.edges!r}, a single number; give "
                "each edge, such as [0, 1, 2] for two bins"
            )
        object.__setattr__(self, "edges", _numbers("edges", self.edges))
        super().__post_init__()

    def _result(self, core: ReductionCore) -> npt.NDArray[Any]:
        bins = (("between", COUNT, len(self.edges) - 1), ("above", COUNT))
        fields = np.dtype([("below", COUNT), *bins, ("nans", COUNT), ("nulls", COUNT)])
        return np.frombuffer(core.whole(), fields).copy()


@dataclasses.dataclass(frozen=True)
class ExponentsJob(Job):
    """The plan of how many numbers of each column have each sign and binary exponent.

    The result has an element for each column, with the counts `nulls`, `nans`, `positive` and
    `negative`; the last two have `zeros`, `subnormals`, `exponents` [2046], where place e + 1022
    counts the numbers from 2^e to 2^(e + 1), and `infinities`. They are the same for any order of
    the rows.

    Args:
        rows, columns, data, chunk_rows, dtype: As for `GramJob`.
    """

    statistic = "exponents"

    def _result(self, core: ReductionCore) -> npt.NDArray[Any]:
        return np.frombuffer(core.whole(), EXPONENTS).copy()


@dataclasses.dataclass(frozen=True)
class DistinctJob(Job):
    """The plan of about how many different numbers each column has (HyperLogLog).

    The result is float64 [k]. -0 equals 0, all NaN are one number, and NULL is not counted.

    Args:
        rows, columns, data, chunk_rows, dtype: As for `GramJob`.
        precision: p, from 4 to 18: 2^p registers for each column; the error is some
            104 % / sqrt(2^p), 0.8 % for 14.
    """

    precision: int = dataclasses.field(default=14, kw_only=True)

    statistic = "distinct"

    def _result(self, core: ReductionCore) -> npt.NDArray[np.float64]:
        return core.figures()


@dataclasses.dataclass(frozen=True)
class TopJob(Job):
    """The plan of the rows with the greatest numbers in one column, or the least.

    The result has an element for each row, in order, with the fields `value` and `row`, which
    counts from 0. Equal numbers are in the order of their rows; NULL and NaN are left out.

    Args:
        rows, columns, data, chunk_rows, dtype: As for `GramJob`.
        column: The number of the column, counted from 0.
        count: The number of rows to keep.
        smallest: Whether to keep the least numbers.
    """

    column: int = dataclasses.field(kw_only=True)
    count: int = dataclasses.field(default=10, kw_only=True)
    smallest: bool = dataclasses.field(default=False, kw_only=True)

    statistic = "top"

    def _result(self, core: ReductionCore) -> npt.NDArray[Any]:
        whole = core.whole()
        kept = int(np.frombuffer(whole, COUNT, 1)[0])
        return np.frombuffer(whole, RANKED_ROW, kept, 8).copy()


@dataclasses.dataclass(frozen=True)
class QuantilesJob(Job):
    """The plan of one pass towards the exact quantiles of each column.

    Rows of float64 need four passes over them, all others two; `quantiles` does them in one call.
    The job without `known` is the first pass. When it is folded, `after` returns the next pass, a
    job of its own over the same rows, and after the last one None.

    The result, of the last pass only, has an element for each column, with the counts `nulls`,
    `nans` and `numbers` (all others, infinities included), and `quantiles`, float64 [number of
    quantiles], NaN in a column without numbers. It is the same for any order of the rows.

    A fold needs 512 KiB for each column, and after the first pass for each quantile of a column
    whose key begins with other bits; at most 512 MiB.

    Args:
        rows, columns, data, chunk_rows, dtype: As for `GramJob`.
        at: The quantiles, as for `quantiles`.
        known: What the passes before have found: `after` sets it.

    Example:
        >>> from headwater.reduce import QuantilesJob, Reduction, fold
        >>> rows = np.array([[3], [1], [2], [5]], np.float32)
        >>> job = QuantilesJob(rows=4, columns=1, data="four rows", at=[0.5, 1])
        >>> while job is not None:
        ...     reduction = Reduction(job)
        ...     _ = reduction.receive(fold(job, 0, rows))
        ...     job = job.after(reduction)
        >>> reduction.result()["quantiles"]
        array([[2., 5.]])
    """

    at: Sequence[float | str] | float | str = dataclasses.field(kw_only=True)
    known: bytes = dataclasses.field(default=b"", kw_only=True)

    statistic = "quantiles"

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", _decimals(self.at))
        super().__post_init__()

    def after(self, reduction: Reduction) -> QuantilesJob | None:
        """Returns the next pass, from the complete reduction of this one; None after the last.

        Raises:
            InvalidArgument: Rows are missing, or the reduction is of another job.
            DataError: The rows are not those of the passes before.
        """
        job = reduction.job
        own = job.job if isinstance(job, PartitionedJob) else job
        if own != self:
            raise InvalidArgument(
                f"expected the reduction of this job, found that of {job!r}; call `after` of the "
                "job that was folded"
            )
        known = reduction._core.next()
        return None if known is None else dataclasses.replace(self, known=known)

    def _result(self, core: ReductionCore) -> npt.NDArray[Any]:
        counts = [(name, COUNT) for name in ("nulls", "nans", "numbers")]
        fields = np.dtype([*counts, ("quantiles", NUMBER, (len(self.at),))])  # type: ignore[arg-type]
        return np.frombuffer(core.whole(), fields).copy()


@dataclasses.dataclass(frozen=True)
class PartitionedJob:
    """The plan of a statistic of rows in parts, such as files, row groups or partitions.

    Each part is a fold of its own, and a fixed tree over the numbers of the parts merges them. So
    nobody needs to know how many rows a part has, or which rows come before it. The bits depend on
    the parts, their order and `chunk_rows`; not on the workers, and not on the order of arrival. A
    part may have no row. Another division of the same rows into parts is another job, which gives
    other bits to sums.

    The result is that of `job`; of a `TopJob` each row has the fields `value`, `part` and `row`,
    counted within the part.

    Args:
        job: The statistic: a job with `rows=None`.
        parts: The number of parts, at most 2^24. A part has at most 2^38 rows.

    Raises:
        InvalidArgument: An argument is not valid.
        LimitExceeded: There are too many parts.

    Example:
        >>> from headwater.reduce import PartitionedJob, Reduction, fold
        >>> of = MomentsJob(None, 1, "three files", dtype="float64")
        >>> job = PartitionedJob(of, parts=3)
        >>> reduction = Reduction(job)
        >>> for part, rows in enumerate([[[1.0], [2.0]], [], [[6.0]]]):
        ...     _ = reduction.receive(fold(job, part, np.reshape(rows, (-1, 1))))
        >>> reduction.result()["mean"]
        array([3.])
    """

    job: Job
    parts: int

    def __post_init__(self) -> None:
        if not isinstance(self.job, Job) or self.job.rows is not None:
            raise InvalidArgument(
                f"expected the job of a statistic with rows=None, found {self.job!r}; a part has "
                "any number of rows"
            )
        ReductionCore(self._fields())

    def _fields(self) -> dict[str, Any]:
        return self.job._fields() | {"parts": self.parts}

    def _result(self, core: ReductionCore) -> npt.NDArray[Any]:
        result = self.job._result(core)
        if not isinstance(self.job, TopJob):
            return result
        ranked = np.empty(len(result), [("value", NUMBER), ("part", COUNT), ("row", COUNT)])
        ranked["value"] = result["value"]
        ranked["part"] = result["row"] >> np.uint64(PART_ROWS_BITS)
        ranked["row"] = result["row"] & np.uint64((1 << PART_ROWS_BITS) - 1)
        return ranked


@dataclasses.dataclass(frozen=True)
class SumJob:
    """The plan of a sum of arrays: of losses, of gradients, of Gram matrices that a GPU made.

    A leaf is some arrays, always of the same names, types and shapes, that the caller has computed.
    A fixed tree over the numbers of the leaves adds them, element by element, each in its own type.
    The bits depend on the leaves and their order, not on who adds them or when they arrive.

    `Reduction.sums` returns them by name.

    Args:
        leaves: The number of leaves.
        arrays: For each name the dtype, float64 or float32, and the shape; or arrays like those of
            a leaf.
        data: A name for these leaves. Portions of leaves with another name are refused.

    Raises:
        InvalidArgument: An argument is not valid.
        LimitExceeded: The arrays are too large.

    Example:
        >>> from headwater.reduce import Reduction, SumJob, fold
        >>> job = SumJob(2, {"loss": np.zeros(()), "grad": np.zeros(3, np.float32)}, "step 1")
        >>> reduction = Reduction(job)
        >>> for leaf in (1, 0):
        ...     arrays = {"loss": np.float64(leaf), "grad": np.ones(3, np.float32)}
        ...     _ = reduction.receive(fold(job, leaf, arrays))
        >>> reduction.sums()
        {'grad': array([2., 2., 2.], dtype=float32), 'loss': array(1.)}
    """

    leaves: int
    arrays: Mapping[str, npt.NDArray[Any] | tuple[str, tuple[int, ...]]]
    data: str

    def __post_init__(self) -> None:
        if not isinstance(self.arrays, Mapping):
            raise InvalidArgument(
                f"expected arrays by their names, found {type(self.arrays).__name__}; name them, "
                'such as {"loss": loss}'
            )
        unnamed = [name for name in self.arrays if not isinstance(name, str)]
        if unnamed:
            raise InvalidArgument(
                f"expected arrays by names that are text, found {unnamed[0]!r}; name them, such as "
                '{"loss": loss}'
            )
        # In the order of their names, so that equal jobs have one plan.
        names = sorted(self.arrays)
        forms = {name: _form_of(name, self.arrays[name]) for name in names}
        object.__setattr__(self, "arrays", forms)
        ReductionCore(self._fields())

    def __hash__(self) -> int:
        return hash((self.leaves, tuple(self._forms().items()), self.data))

    def _forms(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Returns the dtype and the shape of each array."""
        return self.arrays  # type: ignore[return-value]

    def _fields(self) -> dict[str, Any]:
        arrays = [(name, *form) for name, form in self._forms().items()]
        return {"statistic": "sums", "leaves": self.leaves, "data": self.data, "arrays": arrays}

    def _leaf(self, arrays: Mapping[str, npt.ArrayLike]) -> list[npt.NDArray[np.uint8]]:
        """Returns the arrays of a leaf as bytes."""
        found = list(arrays) if isinstance(arrays, Mapping) else type(arrays).__name__
        if not isinstance(arrays, Mapping) or set(arrays) != set(self.arrays):
            raise InvalidArgument(
                f"expected the arrays {list(self.arrays)} by name, as in the job, found {found}"
            )
        leaf = []
        for name, (dtype, shape) in self._forms().items():
            array = _unmasked(arrays[name])
            if array.dtype != dtype or array.shape != shape:
                raise InvalidArgument(
                    f"expected {name} of {dtype} {list(shape)} as in the job, found "
                    f"{array.dtype.name if array.dtype.isnative else array.dtype.str} "
                    f"{list(array.shape)}; convert it, or make the job with that form"
                )
            leaf.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        return leaf

    def _sums(self, core: ReductionCore) -> dict[str, npt.NDArray[Any]]:
        whole, place, result = core.whole(), 0, {}
        for name, (dtype, shape) in self._forms().items():
            count = math.prod(shape)
            result[name] = np.frombuffer(whole, dtype, count, place).reshape(shape).copy()
            place += result[name].nbytes
        return result


def _as_bytes(name: str, given: npt.ArrayLike, dtype: str, columns: int) -> npt.NDArray[np.uint8]:
    """Returns rows as their bytes, after a check of their type; `name` is for messages."""
    array = _unmasked(given)
    found = array.dtype.name if array.dtype.isnative else array.dtype.str
    if found != dtype:
        raise InvalidArgument(
            f"expected {name} of {dtype} as in the job, found {found}; convert "
            "them, or make the job with that dtype"
        )
    if array.ndim == columns == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise InvalidArgument(
            f"expected {name} as a matrix [n, {columns}], found the shape "
            f"{array.shape}; reshape them"
        )
    return np.ascontiguousarray(array).view(np.uint8)


def _numbers(name: str, given: Any) -> tuple[float, ...]:
    """Returns one number, or a list of them, as a tuple."""
    try:
        found = np.atleast_1d(np.asarray(given, np.float64))
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"expected {name} as numbers, found {given!r}: {error}") from error
    if found.ndim != 1:
        raise InvalidArgument(
            f"expected {name} as a list of numbers, found the shape {found.shape}"
        )
    return tuple(found.tolist())


def _decimals(given: Any) -> tuple[str, ...]:
    """Returns one number from 0 to 1, or a list of them, exactly as they are written."""
    single = isinstance(given, str | numbers.Real | Decimal) or np.ndim(given) == 0
    return tuple(_decimal(one) for one in ([given] if single else given))


def _decimal(given: Any) -> str:
    if isinstance(given, str | Decimal) or (
        isinstance(given, numbers.Integral) and not isinstance(given, bool)
    ):
        return str(given)
    if isinstance(given, numbers.Real) and not isinstance(given, bool):
        # The shortest decimal with this value: of 0.1 it is 0.1.
        return repr(float(given))
    raise InvalidArgument(
        f"expected quantiles as numbers from 0 to 1, such as 0.99, found {given!r}"
    )


def _form_of(name: str, given: Any) -> tuple[str, tuple[int, ...]]:
    """Returns the dtype and the shape of an array of a leaf."""
    if not isinstance(given, tuple):
        array = _unmasked(given)
        return array.dtype.name, array.shape
    try:
        dtype, shape = given
        # An array without numbers of this form, if there is one.
        form = np.broadcast_to(np.zeros((), dtype), shape)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(
            f'expected {name} as an array, or as ("float64", shape), found {given!r}: {error}'
        ) from error
    return form.dtype.name, form.shape


def _unmasked(given: npt.ArrayLike) -> npt.NDArray[Any]:
    if isinstance(given, np.ma.MaskedArray):
        raise InvalidArgument(
            "expected an array without a mask, found a masked array; fill it in with `filled`, "
            "or leave out its masked rows"
        )
    return np.asarray(given)

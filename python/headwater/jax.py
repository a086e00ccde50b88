"""Batches and masks as JAX arrays, sums with the same bits on any devices: `pip install jax`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headwater._alias import alias
from headwater._attention import check_batch
from headwater._headwater import InvalidArgument
from headwater._optional import installed_by
from headwater._tree import Fold, Leaves, Node, nodes_within, share
from headwater.reduce import GramJob, Reduction, Worker

with installed_by("pip install jax"):
    import jax
    import jax.numpy as jnp
    from jax.experimental import multihost_utils

_LENGTH_BYTES = 8


def arrays(batch: Mapping[str, npt.NDArray[Any]]) -> dict[str, jax.Array | npt.NDArray[Any]]:
    """Returns the arrays of a batch as JAX arrays on the CPU, without a copy.

    They share the memory of the batch, which is reused after the last of them is deleted.
    `jax.device_put` transfers them to an accelerator. Arrays of 64 bits, such as `obs_time`, stay
    NumPy arrays unless `jax_enable_x64` is set, because JAX would cut them to 32 bits.

    `jnp.from_dlpack` itself refuses the arrays of a batch: they are read-only, and it asks for a
    version of DLPack that cannot say so.

    Example:
        >>> batch = headwater.jax.arrays(sampler.next_train_batch())  # doctest: +SKIP
    """
    return {
        name: jnp.from_dlpack(alias(array))
        if jax.dtypes.canonicalize_dtype(array.dtype) == array.dtype
        else array
        for name, array in batch.items()
    }


class AttentionMasks(NamedTuple):
    """Which cells attend to which, bool [B, S, S]: True at (b, i, j) if cell i attends to j."""

    # Cells of the same column.
    column: jax.Array
    # Cells of the same row.
    feature: jax.Array
    # Cells of rows that refer to the cell's row, or that it refers to.
    neighbor: jax.Array


def attention_masks(batch: Mapping[str, jax.Array | npt.NDArray[Any]]) -> AttentionMasks:
    """Returns the three masks of relational attention for a batch, made on its device.

    Padding attends to nothing and nothing to it, but each cell attends to itself in every mask: a
    row of a mask without any True would make a softmax NaN. It takes batches in both forms, may be
    called within `jax.jit`, and suits `jax.nn.dot_product_attention(..., mask=mask[:, None])`.

    Raises:
        InvalidArgument: The batch lacks an array; the message names it.

    Example:
        >>> masks = attention_masks(arrays(sampler.next_train_batch()))  # doctest: +SKIP
    """
    check_batch(batch)
    rows = jnp.asarray(batch["seq_row_ids"]).astype(jnp.int32)
    columns = jnp.asarray(batch["column_ids"])
    edges = jnp.asarray(batch["fk_edges"]).astype(jnp.int32)
    is_cell = jnp.asarray(batch["is_padding"]) == 0
    most_rows = batch["row_hop"].shape[1]

    def linked(edges: jax.Array, rows: jax.Array) -> jax.Array:
        matrix = jnp.zeros((most_rows, most_rows), bool)
        # Unused edges have rows out of range, which are dropped.
        matrix = matrix.at[edges[:, 0], edges[:, 1]].set(True, mode="drop")
        return (matrix | matrix.T)[rows][:, rows]

    both = is_cell[:, :, None] & is_cell[:, None, :]
    itself = jnp.eye(rows.shape[1], dtype=bool)
    masks = (
        columns[:, :, None] == columns[:, None, :],
        rows[:, :, None] == rows[:, None, :],
        jax.vmap(linked)(edges, rows),
    )
    return AttentionMasks(*(mask & both | itself for mask in masks))


def gram(
    x: jax.Array | npt.NDArray[np.number],
    *,
    chunk_rows: int = 4096,
    threads: int | None = None,
) -> npt.NDArray[np.float64]:
    """Returns the Gram matrix x^T x, with the same bits for any number of processes and devices.

    Each process folds the rows on its own devices; a replicated row is folded once. Processes
    exchange sums, not rows, through JAX's collectives. If the array spans several processes, all of
    them must call this function, as for any collective. An array that one process holds alone, such
    as a NumPy array, is folded without communication.

    Args:
        x: Rows [n, k] of float32, float16, bfloat16 or float64, sharded along the first axis or not
            sharded.
        chunk_rows: The number of rows in a chunk. The rows of a chunk are summed in order, and a
            fixed tree adds the chunks, so another number gives other bits. A chunk must lie on one
            device, so each shard begins at a multiple of `chunk_rows`.
        threads: The number of threads of each process; default: all cores. It changes no bit.

    Returns:
        The matrix, float64 [k, k], on every process.

    Raises:
        InvalidArgument: The array is not such a matrix, or a shard begins within a chunk; then the
            message names a valid `chunk_rows`. All processes raise it.

    Example:
        >>> gram(np.ones((3, 2), np.float32))
        array([[3., 3.],
               [3., 3.]])
    """
    if isinstance(x, jax.core.Tracer):
        raise InvalidArgument(
            "expected a concrete array, found a JAX tracer; call gram outside of jax.jit and "
            "jax.vmap, on the array that the transformed function returns"
        )
    if not isinstance(x, (jax.Array, np.ndarray)):
        raise InvalidArgument(
            f"expected a JAX or NumPy array, found {type(x).__name__}; convert it with "
            "numpy.asarray"
        )
    if x.ndim != 2:
        raise InvalidArgument(
            f"expected rows as a matrix [n, k], found the shape {x.shape}; reshape them"
        )
    rows, columns = x.shape
    # GramJob rejects other dtypes.
    job = GramJob(rows, columns, "an array of JAX", chunk_rows, x.dtype.name)  # type: ignore[arg-type]
    reduction = Reduction(job)
    if not isinstance(x, jax.Array):
        _fold(job, reduction, 0, x, threads)
        return reduction.result()
    _check_shards(x, chunk_rows)
    for shard in x.addressable_shards:
        if shard.replica_id == 0:
            first_row = shard.index[0].indices(rows)[0]
            _fold(job, reduction, first_row, np.asarray(shard.data), threads)
    if not x.is_fully_addressable:
        for pairs in _rounds(jax.process_count()):
            received = _exchanged(reduction.portion(), pairs)
            if received:
                reduction.receive(received)
    return reduction.result()


def _fold(
    job: GramJob, reduction: Reduction, first_row: int, rows: npt.ArrayLike, threads: int | None
) -> None:
    worker = Worker(job, first_row, threads)
    worker.push(rows)
    reduction.receive(worker.portion())


def _check_shards(x: jax.Array, chunk_rows: int) -> None:
    """Rejects shards that begin within a chunk; every process checks all shards."""
    rows, columns = x.shape
    indices = x.sharding.devices_indices_map(x.shape).values()
    cuts = {0}
    for row_slice, column_slice in indices:
        if column_slice.indices(columns)[:2] != (0, columns):
            raise InvalidArgument(
                "expected an array that is sharded along its first axis only, found "
                f"{x.sharding}; reshard it with jax.device_put, so that each shard has whole rows"
            )
        cuts.update(row_slice.indices(rows)[:2])
    cuts.discard(rows)
    wrong = sorted(cut for cut in cuts if cut % chunk_rows != 0)
    if wrong:
        raise InvalidArgument(
            f"expected shards that begin at a multiple of chunk_rows, {chunk_rows}, found one that "
            f"begins at row {wrong[0]}; use chunk_rows={_divisor(cuts, chunk_rows)}, also on "
            "other numbers of devices, because each chunk_rows has other bits"
        )


def _divisor(cuts: Iterable[int], limit: int) -> int:
    """Returns the greatest number up to `limit` that divides all cuts."""
    common = math.gcd(*cuts)
    low = (number for number in range(1, math.isqrt(common) + 1) if common % number == 0)
    divisors = {divisor for number in low for divisor in (number, common // number)}
    return max(divisor for divisor in divisors if divisor <= limit)


Pairs = Sequence[tuple[int, int]]
"""The senders and the receivers of a round; a process is each of the two once at most."""


def _rounds(processes: int) -> Iterator[Pairs]:
    """Yields who sends all that it has to whom, round by round, until each process has all.

    Each process receives log2(processes) times, and in the last rounds merged sums: to gather what
    all have on all would send each of them `processes` times as much.
    """
    paired = 1 << (processes.bit_length() - 1)
    # Those beyond a power of two hand over theirs at first, and receive the whole at last.
    beyond = [(rank, rank - paired) for rank in range(paired, processes)]
    if beyond:
        yield beyond
    for bit in range(paired.bit_length() - 1):
        yield [(rank, rank ^ (1 << bit)) for rank in range(paired)]
    if beyond:
        yield [(receiver, sender) for sender, receiver in beyond]


def _exchanged(own: bytes, pairs: Pairs) -> bytes:
    """Returns the bytes that the sender to this process has; all processes call it."""
    # Arrays that travel have one shape, so the lengths travel first; as bytes, because JAX cuts
    # integers to 32 bits unless jax_enable_x64 is set.
    length = np.frombuffer(len(own).to_bytes(_LENGTH_BYTES, "little"), np.uint8)
    lengths = multihost_utils.process_allgather(length, tiled=False)
    counts = [int.from_bytes(length.tobytes(), "little") for length in np.asarray(lengths)]
    most = max(counts[sender] for sender, _ in pairs)
    sent = np.frombuffer(own[:most].ljust(most, b"\0"), np.uint8)
    sharding, send = _sending(tuple(pairs))
    on_devices = jax.make_array_from_process_local_data(  # type: ignore[no-untyped-call]
        sharding, sent
    )
    passed = send(on_devices)
    sender = {receiver: sender for sender, receiver in pairs}.get(jax.process_index())
    if sender is None:
        return b""
    return np.asarray(passed.addressable_data(0)).tobytes()[: counts[sender]]


@functools.cache
def _sending(pairs: Pairs) -> tuple[jax.sharding.Sharding, Callable[[jax.Array], jax.Array]]:
    """Returns how an array lies on a device of each process, and the program that sends it."""
    first_devices = {device.process_index: device for device in reversed(jax.devices())}
    devices = [first_devices[rank] for rank in range(jax.process_count())]
    mesh = jax.sharding.Mesh(np.array(devices), ("process",))
    by_process = jax.sharding.PartitionSpec("process")  # type: ignore[no-untyped-call]
    passed = functools.partial(jax.lax.ppermute, axis_name="process", perm=list(pairs))
    send = jax.jit(jax.shard_map(passed, mesh=mesh, in_specs=by_process, out_specs=by_process))
    return jax.sharding.NamedSharding(mesh, by_process), send


def tree_sum(tree: Any, axis_name: str, *, leaves: int, folded: bool = False) -> Any:
    """Returns the sum of `leaves` trees of arrays, with the same bits for any number of devices.

    `jax.lax.psum` adds in an order that the number of devices decides. This function adds along a
    fixed tree over the numbers of the leaves, such as the microbatches of a training step. It is
    called inside `jax.shard_map`; the result is on all devices. Devices exchange as many bytes as
    in a `psum`, times the number of nodes that a device holds: one, where the number of devices
    divides `leaves` and the quotient is a power of two.

    Args:
        tree: Arrays [n, ...], the leaves of this device along the first axis. Device r of W has n
            or n - 1 of them, after those of the devices before it: the first `leaves % W` devices
            have one more. Where a device has n - 1, its last row counts nothing: `spread` puts one
            there.
        axis_name: The axis of the mesh over which the leaves are spread.
        leaves: The number of leaves of all devices, at least one for each.
        folded: The arrays are `TreeSum.nodes()`.

    Returns:
        Arrays [...] of the same types.

    Raises:
        InvalidArgument: An array has another number of leaves, or there are more devices.

    Example:
        >>> mesh = jax.sharding.Mesh(jax.devices()[:1], ("data",))
        >>> total = jax.shard_map(
        ...     functools.partial(tree_sum, axis_name="data", leaves=3),
        ...     mesh=mesh, in_specs=jax.P("data"), out_specs=jax.P(), check_vma=False,
        ... )
        >>> total(jnp.array([1.0, 2.0, 4.0]))
        Array(7., dtype=float32)
    """
    world = jax.lax.axis_size(axis_name)
    shares = [share(leaves, rank, world) for rank in range(world)]
    nodes = [nodes_within(of) for of in shares]
    most = max(map(len, nodes)) if folded else len(shares[0])
    for array in jax.tree.leaves(tree):
        if array.shape[:1] != (most,):
            raise InvalidArgument(
                f"expected arrays of {most} {'nodes' if folded else 'leaves'} along the first axis "
                f"on each of {world} devices for leaves={leaves}, found the shape {array.shape}"
            )
    if not folded:
        tree = _nodes_of_device(tree, axis_name, shares, nodes)
    return _sum_of_nodes(tree, axis_name, nodes)


def spread(tree: Any, devices: int) -> Any:
    """Returns arrays [n, ...] of n leaves as `tree_sum` takes them from a number of devices.

    Each device has as many rows then: one that counts nothing follows the leaves of a device that
    has fewer. To pad the arrays at their end instead would drop leaves.

    Args:
        tree: Arrays [n, ...], a leaf in each row.
        devices: The number of devices of the axis, from 1 to n.

    Raises:
        InvalidArgument: The arrays have different numbers of leaves, or there are more devices.

    Example:
        >>> spread(jnp.array([1.0, 2.0, 4.0, 8.0]), devices=3)
        Array([1., 2., 4., 4., 8., 8.], dtype=float32)
    """
    counts = {array.shape[:1] for array in jax.tree.leaves(tree)}
    if len(counts) != 1 or counts == {()}:
        raise InvalidArgument(
            "expected arrays with as many leaves along their first axes, found "
            f"{sorted(counts)}; give each array a row for each leaf"
        )
    ((leaves,),) = counts
    most = len(share(leaves, 0, devices))
    shares = [share(leaves, rank, devices) for rank in range(devices)]
    places = np.array([min(own.start + row, own.stop - 1) for own in shares for row in range(most)])
    return jax.tree.map(lambda array: array[places], tree)


class TreeSum:
    """The leaves of one process for `tree_sum`, added up as they come: gradient accumulation.

    It is used outside of `jax.jit`. Of n leaves it keeps about log2(n) sums.

    Example:
        >>> total = TreeSum(leaves=2)
        >>> for number in total.numbers:
        ...     total.push({"gradient": jnp.full(2, number, jnp.float32)})
        >>> total.nodes()
        {'gradient': Array([[1., 1.]], dtype=float32)}
    """

    def __init__(self, leaves: int, rank: int = 0, world: int = 1) -> None:
        """Raises InvalidArgument if there are more processes than leaves."""
        self._leaves: Leaves[Any] = Leaves(leaves, rank, world, _added)
        # The numbers of this process's leaves, in the order in which they are pushed.
        self.numbers = self._leaves.numbers
        self._world = world
        self._most = max(len(nodes_within(share(leaves, of, world))) for of in range(world))

    def push(self, tree: Any) -> None:
        """Adds the next leaf, and takes over its arrays, whose memory is used again.

        Of NumPy arrays and numbers it makes JAX arrays, which are copies.

        Raises:
            InvalidArgument: It has another form than the leaf before, or is one too many.
        """
        tree = jax.tree.map(lambda of: of if isinstance(of, jax.Array) else jnp.array(of), tree)
        form = jax.tree.map(_form_of, tree)
        self._leaves.push(form, lambda: tree)

    def nodes(self) -> Any:
        """Returns the sums so far, arrays [n, ...], for `tree_sum(..., folded=True)`.

        Raises:
            InvalidArgument: A leaf of this process was not pushed.
        """
        return _stacked(self._leaves.nodes(), self._most)

    def whole(self) -> Any:
        """Returns the sum of all leaves, arrays [...], once, if this is the only process.

        Raises:
            InvalidArgument: There are other processes, or a leaf was not pushed.
        """
        if self._world > 1:
            raise InvalidArgument(
                f"expected one process, found {self._world}, each of which has a part of the sum; "
                "give `nodes()` to tree_sum(..., folded=True)"
            )
        return self._leaves.whole()


def _form_of(array: jax.Array) -> Any:
    return jax.ShapeDtypeStruct(array.shape, array.dtype)  # type: ignore[no-untyped-call]


@functools.partial(jax.jit, donate_argnums=0)
def _added(left: Any, right: Any) -> Any:
    return jax.tree.map(_sum_of_two, left, right)


def _sum_of_two(left: jax.Array, right: jax.Array) -> jax.Array:
    """Returns the sum, where each NaN has the same bits.

    A compiler may swap the two numbers, and of two NaN a processor keeps the bits of the first.
    """
    total = left + right
    if not jnp.issubdtype(total.dtype, jnp.inexact):
        return total
    return jnp.where(jnp.isnan(total), jnp.nan, total)


@functools.partial(jax.jit, static_argnums=1)
def _stacked(nodes: list[Any], most: int) -> Any:
    def stacked(*arrays: jax.Array) -> jax.Array:
        missing = [jnp.zeros_like(arrays[0])] * (most - len(arrays))
        return jnp.stack([*arrays, *missing])

    return jax.tree.map(stacked, *nodes)


def _added_alone(left: Any, right: Any) -> Any:
    return _apart(jax.tree.map(_sum_of_two, left, right))


def _apart(tree: Any) -> Any:
    """Returns the tree as it is.

    XLA may fuse additions with what makes or takes their numbers, in ways that depend on the number
    of devices, but not across this barrier.
    """
    return jax.lax.optimization_barrier(tree)  # type: ignore[no-untyped-call]


def _nodes_of_device(
    tree: Any, axis_name: str, shares: Sequence[range], nodes: Sequence[Sequence[Node]]
) -> Any:
    """Returns the sums of this device's nodes, arrays [most nodes of a device, ...]."""
    most = max(map(len, nodes))
    # Devices whose nodes have the same places and sizes share a branch.
    forms = [
        tuple(Node(of.start - leaves.start, of.size) for of in own)
        for leaves, own in zip(shares, nodes, strict=True)
    ]
    different = sorted(set(forms))

    def folded(form: Sequence[Node], tree: Any) -> Any:
        sums = []
        for node in form:
            fold: Fold[Any] = Fold(_added_alone)
            for place in range(node.size):
                at = node.start + place
                leaf = jax.tree.map(lambda array, at=at: array[at], tree)
                fold.push(Node(place, 1), leaf)
            sums.append(fold.whole())
        return _stacked(sums, most)

    branches = [functools.partial(folded, form) for form in different]
    tree = _apart(tree)
    if len(branches) == 1:
        return branches[0](tree)
    branch_of_device = jnp.array([different.index(form) for form in forms])
    return jax.lax.switch(branch_of_device[jax.lax.axis_index(axis_name)], branches, tree)


def _sum_of_nodes(tree: Any, axis_name: str, nodes: Sequence[Sequence[Node]]) -> Any:
    """Returns the sum of all devices' nodes, each array [most nodes of a device, ...]."""
    arrays, form = jax.tree.flatten(tree)
    sums: list[Any] = [None] * len(arrays)
    for dtype in dict.fromkeys(array.dtype for array in arrays):
        places = [place for place, array in enumerate(arrays) if array.dtype == dtype]
        own = jnp.concatenate(
            [arrays[at].reshape(arrays[at].shape[0], -1) for at in places], axis=1
        )
        whole = _sum_of_vectors(own, axis_name, nodes)
        sizes = [math.prod(arrays[at].shape[1:]) for at in places]
        parts = jnp.split(whole, np.cumsum(sizes)[:-1])
        for at, part in zip(places, parts, strict=True):
            sums[at] = part.reshape(arrays[at].shape[1:])
    return jax.tree.unflatten(form, sums)


def _sum_of_vectors(own: jax.Array, axis_name: str, nodes: Sequence[Sequence[Node]]) -> jax.Array:
    """Returns the sum of the rows that are nodes, of `own` [n, P] on each device."""
    world, (rows, length) = len(nodes), own.shape
    if not length:
        return own[0]
    # Each device adds up a W-th of the numbers, in the order of the tree.
    part = -(-length // world)
    own = jnp.pad(own, ((0, 0), (0, world * part - length)))
    sent = own.reshape(rows, world, part).swapaxes(0, 1)
    received = _apart(
        jax.lax.all_to_all(sent, axis_name, 0, 0)  # type: ignore[no-untyped-call]
    )
    fold: Fold[jax.Array] = Fold(_added_alone)
    for rank, of_rank in enumerate(nodes):
        for row, node in enumerate(of_rank):
            fold.push(node, received[rank, row])
    whole: jax.Array = jax.lax.all_gather(fold.whole(), axis_name, tiled=True)
    return whole[:length]

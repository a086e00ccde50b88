"""The sampler from Python: batches, cursors, resuming, and what it refuses."""

import datetime
import html
import itertools
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import headwater
from samplers import same, sampler


def test_a_batch_has_the_tensors_of_the_format(store_path):
    with sampler(store_path) as running:
        batch = running.next_train_batch()
    b, s, r = 4, 64, 16
    shapes = {
        "semantic_types": ("int8", (b, s)),
        "column_ids": ("int32", (b, s)),
        "seq_row_ids": ("uint16", (b, s)),
        "numeric_values": ("float32", (b, s)),
        "timestamp_values": ("float32", (b, s, 15)),
        "bool_values": ("uint8", (b, s)),
        "categorical_embed_ids": ("uint32", (b, s)),
        "text_embed_ids": ("uint32", (b, s)),
        "is_null": ("uint8", (b, s)),
        "is_target": ("uint8", (b, s)),
        "is_padding": ("uint8", (b, s)),
        "fk_adj": ("uint8", (b, r, r)),
        "fk_edges": ("uint16", (b, r, 2)),
        "fk_relations": ("int32", (b, r)),
        "row_time": ("int64", (b, r)),
        "row_hop": ("uint16", (b, r)),
        "row_relation": ("int32", (b, r)),
        "row_direction": ("uint8", (b, r)),
        "target_pos": ("int32", (b,)),
        "seq_weight": ("float32", (b,)),
        "obs_time": ("int64", (b,)),
        "seed_row": ("uint32", (b,)),
        "num_rows": ("int32", (b,)),
        "target_stype": ("uint8", (1,)),
        "task_idx": ("uint32", (1,)),
        "cat_emb_start": ("uint32", (1,)),
        "cat_emb_count": ("uint32", (1,)),
        "text_batch_embeddings": ("float16", (256, 32)),
    }
    assert {name: (str(a.dtype), a.shape) for name, a in batch.items()} == shapes
    assert type(batch) is dict
    for array in batch.values():
        assert not array.flags.writeable
        assert array.flags.c_contiguous
        assert array.ctypes.data % 64 == 0
    with pytest.raises(ValueError, match="read-only"):
        batch["is_null"][0] = 1
    assert (batch["is_target"].sum(axis=1) == 1).all()


def test_a_batch_of_an_int8_store_has_scales(store_path, int8_store):
    with sampler(store_path) as plain, sampler(int8_store) as running:
        wanted, batch = plain.next_train_batch(), running.next_train_batch()
        assert batch.keys() - wanted.keys() == {"text_batch_scales"}
        for name in wanted.keys() - {"text_batch_embeddings"}:
            np.testing.assert_array_equal(batch[name], wanted[name], err_msg=name)
        vectors, scales = batch["text_batch_embeddings"], batch["text_batch_scales"]
        assert (vectors.dtype, vectors.shape) == (np.int8, (256, 32))
        assert (scales.dtype, scales.shape) == (np.float32, (256,))
        error = np.abs(vectors * scales[:, None] - wanted["text_batch_embeddings"])
        assert (error <= 0.501 * scales[:, None]).all()
        np.testing.assert_array_equal(
            running.text_scales(), headwater.Store(int8_store).text_scales()
        )
    with pytest.raises(headwater.InvalidArgument, match="text vectors of one encoding in a batch"):
        headwater.Sampler({"one": store_path, "two": int8_store})


def test_texts_without_vectors_are_refused_at_the_start(tmp_path, shop_folder, schema_file):
    headwater.prepare(shop_folder, schema_file, tmp_path / "silent", text_vectors=False)
    with pytest.raises(headwater.InvalidArgument, match='found "silent" without'):
        headwater.Sampler({"silent": tmp_path / "silent"})
    with sampler(tmp_path / "silent", texts="global") as running:
        running.next_train_batch()


def test_a_batch_outlives_its_sampler(store_path):
    running = sampler(store_path)
    column = running.next_train_batch()["column_ids"]
    before = column.copy()
    running.shutdown()
    del running
    np.testing.assert_array_equal(column, before)


def test_p8_buffers_are_not_reused_while_their_arrays_exist(store_path):
    with sampler(store_path, num_prefetch=2) as running:
        kept = [running.next_train_batch() for _ in range(3)]
        copies = [{name: array.copy() for name, array in batch.items()} for batch in kept]
        for _ in range(20):
            running.next_train_batch()
        assert all(same(one, two) for one, two in zip(kept, copies, strict=True))


def test_p2_a_resumed_stream_equals_the_tail_bit_for_bit(store_path, tmp_path):
    with sampler(store_path) as running:
        for _ in range(5):
            running.next_train_batch()
        running.save_cursor(tmp_path / "cursor")
        tail = [running.next_train_batch() for _ in range(5)]
    cursors = [tmp_path / "cursor", (tmp_path / "cursor").read_bytes()]
    cursors += [str(tmp_path / "cursor"), headwater.Cursor.read(tmp_path / "cursor")]
    for cursor in cursors:
        with sampler(store_path, num_threads=1, num_prefetch=1) as again:
            again.next_train_batch()
            again.resume(cursor)
            assert all(same(batch, again.next_train_batch()) for batch in tail)


def test_next_batch_returns_the_cursor_after_the_batch(store_path):
    with sampler(store_path) as running:
        batch, cursor = running.next_batch("train")
        assert cursor.encode() == running.cursor()
        assert cursor.position["train/step"] == 1
        following = running.next_train_batch()
        running.next_val_batch()
        running.resume(cursor)
        assert same(running.next_train_batch(), following)
        assert not same(batch, following)


def test_an_unpickled_sampler_continues_from_its_cursor(store_path):
    with sampler(store_path) as running:
        running.next_train_batch()
        again = pickle.loads(pickle.dumps(running))
        assert again.cursor() == running.cursor()
        assert same(again.next_train_batch(), running.next_train_batch())
        again.shutdown()


def test_evaluate_serves_every_seed_once(store_path):
    with sampler(store_path) as running:
        counts = running.seed_counts("val")
        rows = np.concatenate(
            [b["seed_row"][b["seq_weight"] == 1] for b in running.evaluate("val")]
        )
        assert len(rows) == len(set(rows)) == counts["shop/price"]
        with pytest.raises(headwater.InvalidArgument, match="serves no task 'nope'|\"nope\""):
            running.evaluate("val", ["nope"])


def test_sample_makes_the_contexts_of_chosen_rows(store_path):
    with sampler(store_path) as running:
        times = [np.datetime64("2023-01-02"), None, datetime.date(2023, 1, 3)]
        batch = running.sample("price", [17, "18", np.float64(19)], times)
        assert batch["seed_row"][:3].tolist() == [17, 18, 19]
        assert batch["seq_weight"].tolist() == [1, 1, 1, 0]
        assert batch["obs_time"][0] == np.datetime64("2023-01-02", "us").astype(np.int64)
        for keys, times, words in [
            ([123456789], [None], 'no row of table "orders" has the key "123456789"'),
            ([1], [], "1 keys and 0 observation times"),
            ([1], ["soon"], "expected an observation time, found 'soon'"),
            (list(range(5)), [None] * 5, "expected at most 4 anchors .*, found 5"),
        ]:
            with pytest.raises(headwater.InvalidArgument, match=words):
                running.sample("price", keys, times)


def test_a_sampler_gives_the_embeddings_and_metadata_of_its_store(store_path):
    with sampler(store_path) as running:
        assert running.column_embeddings().dtype == np.float16
        assert running.categorical_embeddings().shape == (3, 32)
        store = headwater.Store(store_path)
        assert np.array_equal(running.relation_embeddings(), store.relation_embeddings())
        assert np.array_equal(running.text_embeddings(), store.text_embeddings())
        assert running.database_metadata()["database"] == "shop"
        assert running.tasks == ["shop/price"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rank": 1}, "rank 1 of 1"),
        ({"rank": -1}, "rank: expected a number from 0 to 18446744073709551615, found -1"),
        ({"default_batch_size": 0}, "batch size of at least 1, found 0"),
        ({"default_sequence_length": 70_000}, "sequence length of 1 to 65535"),
        ({"max_rows": 65_536}, "max_rows of 1 to 65535"),
        ({"tasks": ["nope"]}, 'no task is called "nope"; name one of shop/price'),
        ({"tasks": "price"}, "tasks: "),
        ({"walk": "random"}, 'expected walk to be "priority" or "breadth", found "random"'),
        ({"children": "some"}, "expected children to be"),
        (
            {"child_widths": {"orders.nobody": 1}},
            'no relation is called "orders.nobody"; name one of',
        ),
        ({"child_widths": {"shop.x/orders.customer_id": 1}}, "no relation is called"),
        (
            {"child_widths": {"orders.customer_id": -1}},
            "customer_id.*: expected a number from 0 to 4294967295, found -1",
        ),
        ({"child_widths": {"orders.customer_id": 65_536}}, "of 0 to 65535 for .*, found 65536"),
        (
            {"child_widths": {"orders.customer_id": 1, "shop/orders.customer_id": 1}},
            'two child widths for "shop/orders.customer_id"',
        ),
        ({"child_widths": {"orders.customer_id": 1}, "walk": "breadth"}, "walk by priority"),
        ({"num_threads": 0}, "num_threads: expected 1 to 1024, found 0"),
        ({"num_threads": -1}, "num_threads: expected 1 to 1024, found -1"),
        ({"num_threads": 1025}, "num_threads: expected 1 to 1024, found 1025"),
        ({"seed": "x"}, "seed: "),
        ({"split_ratios": (0.5, 0.1, 0.1)}, "add up to 1"),
        # Python takes a truth value as 0 or 1.
        *(
            ({name: truth}, f"{name}: expected a whole number( or None)?, found {truth}$")
            for truth in (True, False)
            for name in (
                "rank", "world_size", "seed", "split_seed", "num_prefetch", "num_threads",
                "default_batch_size", "default_sequence_length", "max_rows", "bfs_child_width",
                "staleness_days",
            )
        ),
        ({"walk": "breadth", "max_hops": True}, "max_hops: expected a whole number or None, found"),
        ({"walk": "breadth", "neighbor_budget": True}, "budget: expected a whole number or None"),
        ({"max_rows": np.True_}, "max_rows: expected a whole number, found (np.)?True"),
        ({"text_buckets": [True]}, r"text_buckets: expected a list of whole .*, found \[True\]$"),
        ({"sequence_buckets": [True]}, r"sequence_buckets: expected a list .*, found \[True\]$"),
        ({"sequence_buckets": [2000]}, "sequence_buckets: expected lengths of 1 to .*, found 2000"),
        ({"child_widths": {"orders.customer_id": True}}, "child_widths: expected .*: True}$"),
        ({"split_ratios": (True, 0, 0)}, r"split_ratios: expected three .*, found \(True, 0, 0\)$"),
        ({"split_ratios": (0.5, 0.5)}, r"split_ratios: expected three .*, found \(0\.5, 0\.5\)$"),
        ({"tasks": ["price"], "task_weights": [True]}, r"task_weights: .*, found \[True\]$"),
        ({"mask_share": True}, "mask_share: expected a number .*, found True$"),
        ({"mask_share": np.False_}, "mask_share: expected a number .*, found (np.)?False_?$"),
        ({"mask_share": 0.1, "mask_most": True}, "mask_most: expected .* or None, found True$"),
    ],
)  # fmt: skip
def test_invalid_settings_are_refused(store_path, changes, words):
    with pytest.raises(headwater.InvalidArgument, match=words):
        sampler(store_path, **changes)


def test_a_relation_may_have_a_width_of_its_own(store_path):
    # An order, its customer, and `width` other orders of the customer.
    for width in range(4):
        with sampler(store_path, child_widths={"orders.customer_id": width}) as running:
            batch = running.next_train_batch()
            cursor = running.cursor()
        assert batch["num_rows"].max() == 2 + width
    full_name = {"shop/orders.customer_id": 3}
    with sampler(store_path, bfs_child_width=1, child_widths=full_name) as running:
        again = running.next_train_batch()
    with sampler(store_path, bfs_child_width=3) as running:
        as_of_all = running.next_train_batch()
        words = r"child_width/shop/orders.customer_id -> customers"
        with pytest.raises(headwater.PlanMismatch, match=words):
            running.resume(cursor)
    assert same(batch, again)
    assert same(batch, as_of_all)


def test_p6_foreign_and_damaged_cursors_are_refused(store_path, tmp_path):
    with sampler(store_path) as running:
        cursor = running.cursor()
        with (
            sampler(store_path, seed=8) as other,
            pytest.raises(headwater.PlanMismatch, match='"seed" was 7 and is now 8'),
        ):
            other.resume(cursor)
        for place in range(0, len(cursor), 37):
            broken = bytearray(cursor)
            broken[place] ^= 4
            with pytest.raises((headwater.Corrupt, headwater.NotOurs)):
                running.resume(bytes(broken))
        with pytest.raises(headwater.IoError):
            running.resume(tmp_path / "nothing")
        assert running.cursor() == cursor


def test_a_pass_goes_on_at_its_cursor(store_path, tmp_path):
    with sampler(store_path, default_batch_size=3) as running:
        whole = [b["seed_row"][b["seq_weight"] > 0].copy() for b in running.evaluate("train")]
        first = running.evaluate("train")
        taken = [next(first)["seed_row"].copy() for _ in range(2)]
        first.save_cursor(tmp_path / "pass.cursor")
        assert first.remaining == len(whole) - 2
        for cursor in (tmp_path / "pass.cursor", first.cursor()):
            rest = running.evaluate("train", cursor=cursor)
            assert rest.remaining == len(whole) - 2
            found = [*taken, *(b["seed_row"][b["seq_weight"] > 0].copy() for b in rest)]
            assert np.array_equal(np.concatenate(found), np.concatenate(whole))
        with pytest.raises(headwater.PlanMismatch, match="pass/split"):
            running.evaluate("test", cursor=first.cursor())
        with pytest.raises(headwater.PlanMismatch, match="found one of kind sampler"):
            running.evaluate("train", cursor=running.cursor())


def test_the_settings_have_the_defaults_of_the_page(store_path):
    told = {
        "require_label": False, "compact": False, "permutations": False, "mask_share": 0.0,
        "staleness_days": 0, "keep_future_cells": False,
    }  # fmt: skip
    with headwater.Sampler(store_path) as plain, headwater.Sampler(store_path, **told) as other:
        assert plain.cursor() == other.cursor()
        assert same(plain.next_train_batch(), other.next_train_batch())


def test_a_sampler_yields_the_batches_of_its_train_stream(store_path):
    with sampler(store_path) as running, sampler(store_path) as other:
        taken = list(itertools.islice(running, 3))
        assert len(taken) == 3
        assert all(same(batch, other.next_train_batch()) for batch in taken)


def test_a_notebook_shows_the_seeds_of_each_task(store_path):
    with sampler(store_path) as running:
        shown, counts = running._repr_html_(), running.seed_counts("train")
        assert f"<caption>{html.escape(repr(running))}</caption>" in shown
        assert "<th>task</th><th>train seeds</th><th>val seeds</th><th>test seeds</th>" in shown
        for task, count in counts.items():
            assert f"<td>{task}</td><td>{count:,}</td>" in shown


def test_a_batch_without_permutations_is_smaller(store_path):
    with sampler(store_path, permutations=True) as running, sampler(store_path) as fewer:
        all_, some = running.next_train_batch(), fewer.next_train_batch()
        assert set(all_) - set(some) == {"col_perm", "out_perm", "in_perm"}
        assert all(np.array_equal(all_[name], some[name]) for name in some)
    with pytest.raises(headwater.InvalidArgument, match="row_order: expected .walk."):
        sampler(store_path, row_order="cuthill-mckee")


# JAX warns of every fork, if a test in this process has loaded it.
@pytest.mark.filterwarnings("ignore:os.fork")
def test_a_batch_after_shutdown_or_in_a_fork_is_an_error(store_path):
    running = sampler(store_path)
    running.next_train_batch()
    evaluation = running.evaluate("train")
    next(evaluation)
    context = multiprocessing.get_context("fork")

    def child(pipe):
        for ask in (running.next_train_batch, lambda: next(evaluation)):
            try:
                ask()
            except headwater.InvalidArgument as error:
                pipe.send(str(error))
            else:
                pipe.send("it went on")

    ours, theirs = context.Pipe()
    process = context.Process(target=child, args=(theirs,))
    process.start()
    for _ in range(2):
        assert ours.poll(20)
        assert "a forked child has none of its threads" in ours.recv()
    process.join(20)
    assert process.exitcode == 0
    running.shutdown()
    with pytest.raises(headwater.SamplerShutdown):
        running.next_train_batch()
    running.cursor()


def with_slow_batches(store_path, ahead):
    return sampler(
        store_path,
        num_prefetch=ahead,
        num_threads=1,
        default_batch_size=512,
        default_sequence_length=1024,
        max_rows=208,
    )


def until_interrupted(step):
    """Repeats a step until Ctrl-C, which comes soon, and returns how often it was done."""
    done = 0
    timer = threading.Timer(0.2, signal.raise_signal, (signal.SIGINT,))
    timer.start()
    try:
        while True:
            step()
            done += 1
    except KeyboardInterrupt:
        pass
    timer.join()
    return done


@pytest.mark.parametrize("ahead", [0, 3])
def test_p8_ctrl_c_during_the_wait_consumes_no_batch(store_path, ahead):
    running = with_slow_batches(store_path, ahead)

    def position():
        return headwater.Cursor.decode(running.cursor()).position["train/step"]

    lost = 0
    for _ in range(10):
        before = position()
        taken = until_interrupted(running.next_train_batch)
        lost += position() - before - taken
    # Python may raise KeyboardInterrupt between the return of the call and the next line.
    assert lost <= 1


@pytest.mark.parametrize("ahead", [0, 3])
def test_p8_ctrl_c_consumes_no_batch_of_a_pass(store_path, ahead):
    running = with_slow_batches(store_path, ahead)
    # As many passes as an interrupt needs to come in the middle of one.
    passes = [running.evaluate("train")]
    given = [passes[-1].remaining]

    def step():
        if passes[-1].remaining == 0:
            passes.append(running.evaluate("train"))
            given.append(passes[-1].remaining)
        next(passes[-1])

    taken = sum(until_interrupted(step) for _ in range(10))
    consumed = sum(given) - sum(one.remaining for one in passes)
    # Python may raise KeyboardInterrupt between the return of the call and the next line.
    assert 0 <= consumed - taken <= 1, (consumed, taken)
    assert taken > 20
    running.shutdown()


def test_a_pass_without_tasks_is_refused(store_path):
    with (
        sampler(store_path) as running,
        pytest.raises(headwater.InvalidArgument, match="at least one task for a pass, found none"),
    ):
        running.evaluate("train", [])


# JAX warns of every fork, if a test in this process has loaded it.
@pytest.mark.filterwarnings("ignore:os.fork")
def test_a_forked_child_can_close_the_sampler_of_its_parent(store_path):
    """The child does not wait for threads that it does not have, and exits normally."""
    running = sampler(store_path)
    evaluation = running.evaluate("train")
    next(evaluation)
    running.next_train_batch(), running.next_val_batch()
    child = os.fork()
    if child == 0:
        status = 3
        try:
            with running:
                pass
            del evaluation, running
            status = 0
        finally:
            os._exit(status)
    for _ in range(400):
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            break
        time.sleep(0.05)
    else:
        os.kill(child, signal.SIGKILL)
    assert found == child
    assert os.waitstatus_to_exitcode(status) == 0
    running.next_train_batch()


def test_an_evaluation_ends_with_its_sampler_and_refuses_repeated_tasks(store_path):
    running = sampler(store_path)
    name = running.tasks[0]
    with pytest.raises(headwater.InvalidArgument, match="named twice"):
        running.evaluate("train", [name, name.split("/")[1]])
    evaluation = running.evaluate("train")
    next(evaluation)
    running.shutdown()
    with pytest.raises(headwater.SamplerShutdown):
        next(evaluation)


def test_settings_that_need_too_much_memory_are_refused(store_path):
    with pytest.raises(
        headwater.InvalidArgument, match="num_threads: expected 1 to 1024, found 5000"
    ):
        sampler(store_path, num_threads=5000)
    with pytest.raises(headwater.LimitExceeded, match="2\\^47 bytes"):
        sampler(store_path, default_batch_size=60_000, max_rows=65_535)
    # More than half of the address space: refused even if the system overcommits memory.
    huge = sampler(store_path, default_batch_size=30_000, max_rows=65_535, num_prefetch=0)
    with pytest.raises(headwater.LimitExceeded, match="cannot allocate .*smaller max_rows"):
        huge.next_train_batch()


def test_a_time_with_a_zone_is_converted_to_utc():
    at = headwater.sampler.micros("2022-10-14T21:44:45")
    zone = datetime.timezone(datetime.timedelta(hours=2))
    assert headwater.sampler.micros("2022-10-14T23:44:45+02:00") == at
    assert headwater.sampler.micros("2022-10-14 21:44:45Z") == at
    assert headwater.sampler.micros(datetime.datetime(2022, 10, 14, 23, 44, 45, tzinfo=zone)) == at


def test_times_are_microseconds_up_to_the_years_that_fit():
    assert headwater.sampler.micros(5) == headwater.sampler.micros(np.int64(5)) == 5
    for when in ("290000-01-01", "-290000-01-01"):
        assert headwater.sampler.micros(when) == np.datetime64(when, "us").astype(int)


@pytest.mark.parametrize(
    "when", ["NaT", "", "-300000-01-01", "300000-01-01", True, 2**70, "soon", "today"]
)
def test_invalid_times_are_refused(store_path, when):
    running = sampler(store_path)
    task = running.tasks[0]
    with pytest.raises(headwater.InvalidArgument, match="expected an observation time"):
        running.sample(task, ["1"], [when])


def test_other_python_threads_run_while_a_batch_is_made(store_path):
    """Another thread records times; some of them lie in the middle of a call."""
    ticks = []
    done = threading.Event()

    def work():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0001)

    thread = threading.Thread(target=work)
    large = {"default_batch_size": 16_384, "num_prefetch": 0, "num_threads": 1}
    with sampler(store_path, permutations=True, row_order="cuthill-mckee", **large) as running:
        running.next_train_batch()
        thread.start()
        inside = 0
        for _ in range(5):
            started = time.perf_counter()
            running.next_train_batch()
            took = time.perf_counter() - started
            # At both ends of a call the interpreter may switch threads, but not in the middle.
            middle = (started + 0.3 * took, started + 0.7 * took)
            inside += sum(middle[0] < tick < middle[1] for tick in ticks)
        done.set()
        thread.join()
    # Four times the interval after which the interpreter switches threads.
    assert took > 0.02
    assert inside > 0


@pytest.mark.parametrize("compact", [False, True])
def test_a_context_is_drawn_with_the_settings_of_the_sampler(store_path, tmp_path, compact):
    page = tmp_path / "context.html"
    with sampler(store_path, compact=compact, default_sequence_length=6) as running:
        running.render_context(running.tasks[0], 3, page)
        narrow = page.read_text()
        running.render_context(running.tasks[0], 3, page)
        assert page.read_text() == narrow
        with pytest.raises(headwater.InvalidArgument, match="expected a seed_index below"):
            running.render_context(running.tasks[0], 10**6, page)
        (tmp_path / "mine").write_text("mine")
        with pytest.raises(headwater.InvalidArgument, match="is not a page of headwater"):
            running.render_context(running.tasks[0], 3, tmp_path / "mine")
    with sampler(store_path) as wider:
        wider.render_context(wider.tasks[0], 3, page)
        assert len(page.read_text()) > len(narrow)


def test_p3_seek_needs_no_cursor(store_path):
    with sampler(store_path) as whole, sampler(store_path, num_prefetch=2) as seeking:
        steps = [whole.next_train_batch() for _ in range(9)]
        for step in (8, 0, 3):
            seeking.seek("train", step)
            assert same(seeking.next_train_batch(), steps[step])
        with pytest.raises(
            headwater.InvalidArgument, match="step: expected a number from 0 to .*, found -1"
        ):
            seeking.seek("train", -1)


def test_a_pass_tells_how_many_batches_are_left(store_path):
    with sampler(store_path) as running:
        expected = running.batches_per_epoch("val")
        evaluation = running.evaluate("val")
        assert evaluation.remaining == expected > 0
        next(evaluation)
        assert evaluation.remaining == expected - 1 == len(list(evaluation))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"max_hops": 2}, 'max_hops: expected none, because walk "priority" does not use it'),
        ({"neighbor_budget": 2}, "neighbor_budget: expected none"),
        ({"walk": "breadth", "bfs_child_width": 4}, "bfs_child_width: expected none"),
        ({"walk": "breadth", "children": "latest"}, "children: expected none"),
        ({"texts": "global", "text_buckets": [64]}, "text_buckets: expected none"),
    ],
)
def test_arguments_without_effect_are_refused(store_path, arguments, words):
    with pytest.raises(headwater.InvalidArgument, match=words):
        sampler(store_path, **arguments)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is that of Linux")
def test_a_batch_too_large_for_the_memory_is_an_error(store_path):
    # Under each limit a batch is made, or refused; the process never ends.
    code = f"""
import resource, headwater
running = headwater.Sampler({str(store_path)!r}, default_batch_size=200_000,
    default_sequence_length=16, max_rows=1, compact=True, num_prefetch=0, num_threads=1)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
most = resource.getrlimit(resource.RLIMIT_AS)[1]
made = refused = 0
for extra in range(0, 700, 20):
    resource.setrlimit(resource.RLIMIT_AS, (used + (extra << 20), most))
    try:
        running.sample(running.tasks[0], [], [])
        made += 1
    except headwater.LimitExceeded as error:
        assert "use a smaller batch_size" in str(error), error
        refused += 1
resource.setrlimit(resource.RLIMIT_AS, (most, most))
print(made, refused)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    made, refused = map(int, done.stdout.split())
    assert made > 0, done.stdout
    assert refused > 3, done.stdout


def test_masked_cells_are_marked_and_listed(store_path):
    settings = {"mask_share": 0.3, "default_batch_size": 8}
    with sampler(store_path, **settings) as running, sampler(store_path, default_batch_size=8) as p:
        seen = 0
        for _ in range(5):
            batch, plain = running.next_train_batch(), p.next_train_batch()
            assert all(np.array_equal(batch[name], plain[name]) for name in plain)
            masked = batch["is_masked"] == 1
            assert not (
                masked & (batch["is_null"] | batch["is_padding"] | batch["is_target"])
            ).any()
            assert not (masked & (batch["semantic_types"] == 0)).any()
            for row, places in enumerate(batch["masked_pos"]):
                listed = places[places != 65535]
                assert np.array_equal(listed, np.flatnonzero(masked[row])[: len(places)])
                seen += len(listed)
        assert seen > 40
        assert set(batch) - set(plain) == {"is_masked", "masked_pos"}
        chosen = running.sample(running.tasks[0], [], [])
        assert not chosen["is_masked"].any()
        with pytest.raises(headwater.PlanMismatch, match="mask_share"):
            running.resume(p.cursor())
    with sampler(store_path, mask_share=0.5, mask_texts=False, mask_most=3) as running:
        batch = running.next_train_batch()
        assert batch["masked_pos"].shape == (4, 3)
        assert not ((batch["is_masked"] == 1) & (batch["semantic_types"] == 5)).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mask_share": 1.0}, "mask_share: expected a share"),
        ({"mask_share": -0.1}, "mask_share: expected a share"),
        ({"mask_share": float("nan")}, "mask_share: expected a share"),
        ({"mask_share": 7e-6}, r"of at least 1/131072 \(0.0000077\).* found 0.000007,"),
        (
            {"mask_share": "0.15"},
            'mask_share: expected a number of at least 0 and below 1, found "0.15"$',
        ),
        (
            {"mask_share": None},
            "mask_share: expected a number of at least 0 and below 1, found None$",
        ),
        (
            {"mask_share": 0.1, "mask_most": 2.5},
            "mask_most: expected a whole number or None, found 2.5$",
        ),
        (
            {"mask_share": 0.1, "mask_texts": "no"},
            'mask_texts: expected True, False or None, found "no"$',
        ),
        ({"mask_most": 3}, "mask_most: expected none, because a mask_share of 0"),
        ({"mask_texts": True}, "mask_texts: expected none, because a mask_share of 0"),
        ({"mask_share": 0.1, "mask_most": 0}, "mask_most: expected 1 to 64, .* found 0; leave"),
        (
            {"mask_share": 0.1, "mask_most": 65},
            "mask_most: expected 1 to 64, because a sequence has 64 cells, found 65; leave it out",
        ),
        ({"mask_share": 0.1, "mask_most": 70000}, "mask_most: expected 1 to 64, .* found 70000;"),
    ],
)
def test_masks_that_make_no_sense_are_refused(store_path, arguments, message):
    with pytest.raises(headwater.InvalidArgument, match=message):
        sampler(store_path, **arguments)


def test_a_cursor_replaces_no_file_but_a_cursor(store_path, tmp_path):
    notes = tmp_path / "notes.csv"
    notes.write_text("a,b\n")
    with sampler(store_path) as running:
        with pytest.raises(headwater.InvalidArgument, match="is there already and is no cursor"):
            running.save_cursor(notes)
        assert notes.read_text() == "a,b\n"
        empty = tmp_path / "empty"
        empty.touch()
        for path in (empty, empty, tmp_path / "new", tmp_path / "new"):
            running.next_train_batch()
            running.save_cursor(path)
            assert path.read_bytes() == running.cursor()


@pytest.mark.parametrize(
    ("keys", "times", "message"),
    [
        ("12", ["2024-01-01"] * 2, "keys: expected one for each context, found '12'"),
        ([1, 2], "2024-01-01", "obs_times: expected one for each context, found '2024-01-01'"),
    ],
)
def test_a_string_is_refused_as_a_list_of_keys_or_times(store_path, keys, times, message):
    with (
        sampler(store_path) as running,
        pytest.raises(headwater.InvalidArgument, match=message),
    ):
        running.sample(running.tasks[0], keys, times)

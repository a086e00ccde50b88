"""Token rows from Python: a plain twin, cursors, adaptors, and what bad input says."""

import datetime
import hashlib
import html
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import tomllib

import numpy as np
import pyarrow as pa
import pytest

import headwater
import payments
from event_twin import Twin
from pings import SCHEMA, pings, write_csv

SETTINGS = {"seed": 3, "batch_size": 8, "sequence_length": 256}


@pytest.fixture(scope="module")
def events_schema(tmp_path_factory):
    path = tmp_path_factory.mktemp("schema") / "events.toml"
    path.write_text(SCHEMA)
    return path


@pytest.fixture(scope="module")
def events_path(tmp_path_factory, events_schema):
    folder = tmp_path_factory.mktemp("pings")
    report = headwater.prepare(write_csv(folder, pings()), events_schema, folder / "pings.db")
    assert report["entity_count"] == 40
    return folder / "pings.db"


@pytest.fixture(scope="module")
def payments_path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("payments")
    (folder / "schema.toml").write_text(payments.SCHEMA)
    data = payments.write_csv(folder, payments.payments())
    report = headwater.prepare(data, folder / "schema.toml", folder / "payments.db")
    assert report["entity_count"] == 40
    return folder / "payments.db"


@pytest.fixture(params=["latency-v1", "fields-v1"])
def either_path(request, events_path, payments_path):
    """A store of each codec."""
    return events_path if request.param == "latency-v1" else payments_path


def row_of(batch, row):
    return {name: array[row] for name, array in batch.items()}


def same(one, two):
    return one.keys() == two.keys() and all(np.array_equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("packing", [True, False])
def test_a_plain_twin_makes_the_same_rows(either_path, packing):
    for length, count in ((1024, 60), (256, 440)):
        twin = Twin(either_path, seed=9, sequence_length=length, packing=packing)
        settings = {"sequence_length": length, "batch_size": 20, "packing": packing}
        with headwater.Events(either_path, seed=9, **settings) as events:
            for split in ("train", "test"):
                for first in range(0, count, 20):
                    batch, _ = events.next_batch(split)
                    for row in range(20):
                        assert same(row_of(batch, row), twin.row(split, first + row)), first + row


def test_a_plain_twin_makes_the_same_pass(events_path):
    twin = Twin(events_path, seed=9, sequence_length=256, packing=True)
    expected = twin.passed("val")
    with headwater.Events(events_path, seed=9, batch_size=4, sequence_length=256) as events:
        rows = [row_of(batch, row) for batch in events.evaluate("val") for row in range(4)]
    assert len(expected) == events.row_count("val") > 0
    assert all(same(row, twin) for row, twin in zip(rows, expected, strict=False))
    assert all(row["weight"] == 0 and row["entity"] == -1 for row in rows[len(expected) :])
    # The pass keeps its sampler.
    assert list(headwater.Events(events_path, batch_size=4).evaluate("val"))


def test_a_plain_twin_gives_the_same_latest_events(either_path):
    twin = Twin(either_path, seed=3, sequence_length=256, packing=True)
    with headwater.Events(either_path, **SETTINGS) as events:
        first, last = (events.metadata()[name] for name in ("first_us", "last_us"))
        for number in range(40):
            name = events.entity(number)
            for before, length in [(None, 256), ((first + last) // 2, 100), (last, 97)]:
                tokens = events.latest(name, before=before, length=length)
                assert tokens.dtype == np.uint16
                expected = twin.latest(number, before or 2**63, length)
                assert tokens.tolist() == expected, (name, before)


def test_latest_is_the_twins_at_equal_times_over_many_rows_and_long_gaps(tmp_path):
    random = np.random.default_rng(5)
    names = [("a|b", "c"), ("a", "b|c"), ("a\\", "|"), (" ", "x"), ("é", "日"), ("solo", "1")]
    starts = [0, 2**32 - 1, 2**32, 1_751_000_000, 7_258_118_399]
    rows = []
    for name in names:
        for _ in range(1 if name[0] == "solo" else random.choice([40, 300])):
            seconds = random.choice(starts) + random.choice([0, 0, 0, -1, 1, 2, 300, -300])
            times = np.clip(seconds, 0, 7_258_118_399) * 10**6 + random.choice([0, 1, 999_999])
            shop, note = random.choice(["x", "y", "zz"]), random.choice([None, "n" * 5])
            rows.append((*name, int(times), str(shop), note))
    table = pa.table(
        dict(zip(("one", "two", "at", "shop", "note"), zip(*rows, strict=True), strict=True))
    )
    schema = {
        "database": "log",
        "events": {
            "source": "log",
            "codec": "fields-v1",
            "entity": ["one", "two"],
            "row_bytes": 1024,
            "time": {"column": "at", "unit": "us"},
            "split": {"train": 0.5, "val": 0.2, "test": 0.3},
            "fields": {"shop": {"type": "category", "max_tokens": 1}, "note": "bytes"},
        },
    }
    report = headwater.prepare({"log": table}, schema, tmp_path / "log.db")
    assert report["row_count"] > 2 * report["entity_count"]
    twin = Twin(tmp_path / "log.db", seed=3, sequence_length=256, packing=True)
    with headwater.Events(tmp_path / "log.db", **SETTINGS) as events:
        numbers = {events.entity(number): number for number in range(len(names))}
        for name in names:
            text = "|".join(part.replace("\\", "\\\\").replace("|", "\\|") for part in name)
            times = sorted({row[2] for row in rows if row[:2] == name})
            for before in [None, *times[:: max(1, len(times) // 9)], times[-1] + 1]:
                for length in (60, 256, 5000):
                    found = events.latest(name, before=before, length=length)
                    limit = 2**63 if before is None else before
                    expected = twin.latest(numbers[text], limit, length)
                    assert found.tolist() == expected, (name, before, length)


def test_an_argument_that_is_no_list_of_whole_numbers_is_named(payments_path):
    with headwater.Events(payments_path, **SETTINGS) as events:
        batch = next(events)
        for call, message in [
            (lambda: events.decode(batch["inputs"]), "tokens: expected a list of whole numbers"),
            (lambda: events.decode([0.5]), "tokens: expected a list of whole numbers"),
            (lambda: events.rows(5), "indices: expected a list of whole numbers, found 5"),
            (lambda: events.rows(["a"]), "indices: expected a list of whole numbers"),
            (lambda: events.seek("a"), 'row: expected a whole number, found "a"'),
        ]:
            with pytest.raises(headwater.InvalidArgument, match=message):
                call()
        row = batch["inputs"][0][batch["inputs_segmentation"][0] == 1]
        assert events.decode(row) == events.decode(row.tolist())


def test_the_default_length_fits_the_longest_event(tmp_path):
    (tmp_path / "log.csv").write_text("who,at,a,b\n" + "x,2025-07-01 10:00:00,aa,b\n" * 3)
    wide = {"type": "bytes", "max_bytes": 254}
    schema = {
        "database": "log",
        "events": {
            "source": "log",
            "codec": "fields-v1",
            "entity": "who",
            "time": "at",
            "fields": {"a": wide, "b": wide},
            "split": {"train": 1.0, "val": 0.0, "test": 0.0},
        },
    }
    report = headwater.prepare(tmp_path / "log.csv", schema, tmp_path / "log.db")
    with headwater.Events(tmp_path / "log.db", num_prefetch=0) as events:
        assert events.room == report["room"] == 10 + 2 * 256
        assert events.sequence_length == 1024
    schema["events"]["fields"] = dict.fromkeys(("a", "b", "at", "who"), wide)
    report = headwater.prepare(tmp_path / "log.csv", schema, tmp_path / "wide.db")
    with headwater.Events(tmp_path / "wide.db", num_prefetch=0) as events:
        assert events.sequence_length == report["room"] == 10 + 4 * 256
        assert next(events)["inputs"].shape == (128, 10 + 4 * 256)


def test_latest_takes_datetimes_and_whole_events(payments_path):
    with headwater.Events(payments_path, **SETTINGS) as events:
        name = events.entity(3)
        middle = (events.metadata()["first_us"] + events.metadata()["last_us"]) // 2
        moment = datetime.datetime.fromtimestamp(middle // 10**6, datetime.UTC)
        early = events.latest(name, before=moment)
        assert np.array_equal(early, events.latest(name, before=moment.replace(tzinfo=None)))
        here = moment.astimezone(datetime.timezone(datetime.timedelta(hours=5)))
        naive = moment.replace(tzinfo=None)
        for same in (here, np.datetime64(naive, "ns"), naive.isoformat(), str(naive)):
            assert np.array_equal(early, events.latest(name, before=same)), same
        midnight = datetime.datetime.combine(moment.date(), datetime.time())
        by_date = events.latest(name, before=moment.date())
        assert np.array_equal(by_date, events.latest(name, before=midnight))
        assert np.array_equal(early, events.latest(name, before=middle // 10**6 * 10**6))
        left_out = [
            len(events.latest(one, length=9999))
            - len(events.latest(one, before=moment, length=9999))
            for one in map(events.entity, range(40))
        ]
        assert min(left_out) >= 0
        assert sum(count > 0 for count in left_out) > 10
        for arguments, message in [
            ({"entity": "card-99"}, 'a value of card, found "card-99"'),
            ({"entity": name, "length": 3}, "length: expected at least"),
            ({"entity": name, "length": -1}, "length"),
            ({"entity": 7}, 'a value of card, found "7"'),
            ({"entity": 7.5}, "entity: .* found float"),
            ({"entity": (name, 7.5)}, "entity: .* found float"),
            ({"entity": name, "length": 2.5}, "length: expected a whole number or None, found 2.5"),
            ({"entity": name, "before": "yesterday"}, "before: .* found 'yesterday'"),
            ({"entity": name, "before": True}, "before: .* found True"),
            ({"entity": name, "before": np.datetime64("NaT")}, "before: .* found .*NaT"),
            ({"entity": name, "before": middle // 10**6}, "multiply seconds by 1,000,000"),
            ({"entity": name, "before": 2**70}, "before"),
        ]:
            with pytest.raises(headwater.InvalidArgument, match=message):
                events.latest(**arguments)


def test_tokens_are_decoded_as_they_were_prepared(payments_path):
    rows = payments.payments()
    known = {(card, time // 10**6): rest for card, time, *rest in rows}
    with headwater.Events(payments_path, batch_size=64, sequence_length=256) as events:
        assert events.vocabulary_size == 272 + 5 + 5 + 3
        batch, _ = events.next_batch("train")
        seen = 0
        for row, number in enumerate(batch["entity"]):
            first = batch["inputs"][row][batch["inputs_segmentation"][row] == 1]
            time = 0
            for event in events.decode(first.tolist()):
                values = {field["name"]: field["value"] for field in event["fields"]}
                when = values.pop("time", None)
                if when is None:
                    continue
                time = when["absolute"] if "absolute" in when else time + when["since"]
                merchant, channel, amount, note, due = known[events.entity(int(number)), time]
                expected = {"channel": channel}
                if merchant:
                    expected["merchant"] = merchant
                if note:
                    expected["note"] = note.encode()[:9].decode(errors="replace")
                assert values.pop("amount", "") == (
                    "" if amount == "" else pytest.approx(amount, rel=1 / 1024)
                )
                assert values.pop("due", "") == (
                    "" if due == "" else pytest.approx(due // 10**6 - time, rel=1 / 1024)
                )
                assert values == expected
                seen += 1
        assert seen > 100
        for wrong, message in (
            ([5], "token 0: expected the token 0, which begins an event, found the token 5"),
            ([0, 0, 7], "token 2: expected the token of a field, or of a time, found the token 7"),
            ([0, 274, 20], "token 3: expected the token of a byte (16 to 271), found the end"),
            ([0, 272, 20], "token 2: expected the token of one of the field's values"),
        ):
            with pytest.raises(headwater.DataError, match=re.escape(message)):
                events.decode(wrong)
        with pytest.raises(
            ValueError, match="token: expected a number from 0 to 65535, found 70000"
        ):
            events.decode([70_000])


def test_a_history_of_two_events_gives_pairs(tmp_path, events_schema):
    rows = [("10.7.0.1", "10.7.9.1", 4, 1_751_000_000_000_000 + 10**9 * n, 1.0) for n in range(2)]
    headwater.prepare(write_csv(tmp_path, rows), events_schema, tmp_path / "pings.db")
    with headwater.Events(tmp_path / "pings.db", packing=False) as events:
        split = next(s for s in ("train", "val", "test") if events.row_count(s))
        batch, _ = events.next_batch(split)
    assert set((batch["inputs_segmentation"].sum(axis=1) > 23).tolist()) == {True, False}


def test_a_cursor_does_not_replace_a_device(events_path, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with (
        headwater.Events(events_path, **SETTINGS) as events,
        pytest.raises(headwater.IoError, match="exists already and is not a file"),
    ):
        events.save_cursor(pipe)
    assert pipe.is_fifo()


def test_p2_resume_is_a_law_from_a_file_bytes_and_pickle(events_path, tmp_path):
    with headwater.Events(events_path, **SETTINGS) as events:
        for _ in range(3):
            next(events)
        events.save_cursor(tmp_path / "cursor")
        saved, pickled = events.cursor(), pickle.dumps(events)
        tail = [next(events) for _ in range(3)]
    for resume in (str(tmp_path / "cursor"), saved, headwater.Cursor.decode(saved)):
        with headwater.Events(events_path, **SETTINGS) as events:
            events.resume(resume)
            assert all(same(next(events), batch) for batch in tail)
    with pickle.loads(pickled) as events:
        assert all(same(next(events), batch) for batch in tail)


TAKES_BATCHES = """
import hashlib, sys, headwater
path, folder = sys.argv[1:]
with headwater.Events(path, seed=3, batch_size=8, sequence_length=256) as events:
    with open(folder + "/digests", "wb", buffering=0) as file:
        while True:
            file.write(hashlib.sha256(next(events)["inputs"]).digest())
            events.save_cursor(folder + "/cursor")
            print("taken", flush=True)
"""


def test_p2_a_killed_process_resumes_at_its_cursor(events_path, tmp_path):
    with headwater.Events(events_path, **SETTINGS) as events:
        whole = [hashlib.sha256(next(events)["inputs"]).digest() for _ in range(60)]
    for killed_after in (1, 17, 40):
        command = [sys.executable, "-c", TAKES_BATCHES, events_path, tmp_path]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            for _ in range(killed_after):
                process.stdout.readline()
            os.kill(process.pid, signal.SIGKILL)
        cursor = headwater.Cursor.read(tmp_path / "cursor")
        done = cursor.position["train/rows"] // 8
        assert killed_after <= done < 60
        digests = (tmp_path / "digests").read_bytes()
        assert [digests[at * 32 : at * 32 + 32] for at in range(done)] == whole[:done]
        with headwater.Events(events_path, **SETTINGS) as events:
            events.resume(cursor)
            tail = [hashlib.sha256(next(events)["inputs"]).digest() for _ in range(60 - done)]
        assert tail == whole[done:]


def test_the_settings_have_the_defaults_of_the_page(events_path):
    told = {"rank": 0, "world_size": 1, "seed": 42, "batch_size": 128, "packing": True}
    with headwater.Events(events_path) as plain, headwater.Events(events_path, **told) as other:
        assert next(plain)["inputs"].shape == (128, plain.sequence_length)
        next(other)
        assert plain.cursor() == other.cursor()


def test_seek_and_rows_reach_any_row(events_path):
    with headwater.Events(events_path, **SETTINGS) as events:
        batches = [next(events) for _ in range(4)]
        events.seek(16)
        assert same(next(events), batches[2])
        picked = events.rows([31, 0, 9])
        for row, (batch, at) in enumerate([(3, 7), (0, 0), (1, 1)]):
            assert same(row_of(picked, row), row_of(batches[batch], at))
        assert picked["weight"].tolist() == [1, 1, 1, 0, 0, 0, 0, 0]


def test_the_time_zone_of_the_machine_changes_nothing(events_path):
    script = (
        "import sys, headwater, hashlib\n"
        "with headwater.Events(sys.argv[1], batch_size=8) as events:\n"
        "    batch = next(events)\n"
        "print(hashlib.sha256(batch['inputs'].tobytes()).hexdigest())\n"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", script, events_path],
            env={**os.environ, "TZ": zone},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for zone in ("UTC", "America/New_York", "Asia/Kolkata")
    }
    assert len(digests) == 1


def test_membership_is_stable_under_file_order_and_added_probes(tmp_path, events_schema):
    rows = pings(30)
    more = [*rows, ("10.9.9.9", "10.7.0.1", 4, 1_751_000_000_000_000, 1.0)]

    def sources(name, rows):
        headwater.prepare(write_csv(tmp_path, rows), events_schema, tmp_path / name)
        with headwater.Events(tmp_path / name) as events:
            return {
                split: {
                    events.entity(number)
                    for batch in events.evaluate(split)
                    for number in batch["entity"]
                    if number >= 0
                }
                for split in ("train", "val", "test")
                if events.row_count(split)
            }

    before = sources("one", rows)
    assert sources("two", rows[::-1]) == before
    after = sources("three", more)
    assert all(before[split] <= after[split] for split in before)
    assert sum(map(len, after.values())) == sum(map(len, before.values())) + 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rtt": "nan"}, "with an rtt of NaN (a failed measurement has a negative rtt); the first"),
        ({"rtt": ""}, "with an rtt of NULL (a failed measurement has a negative rtt)"),
        ({"rtt": "9e12"}, "with an rtt above 50 days (expected milliseconds); the first is in row"),
        ({"rtt": "fast"}, "expected a number of milliseconds, found 'fast' in row 3"),
        ({"event_time": "-5"}, "with a time outside of 1970 to 2200; the first is in row 3"),
        ({"event_time": ""}, "without a time; the first is in row 3"),
        ({"src_addr": ""}, "without an entity (NULL or blank); the first is in row 3"),
        ({"dst_addr": "example.org"}, "that is no IPv4 or IPv6 address; the first is in row 3"),
        ({"dst_addr": "::1"}, "whose two addresses, or address and family, do not fit each other"),
        ({"ip_version": "6"}, "whose two addresses, or address and family, do not fit each other"),
    ],
)
def test_invalid_events_are_counted_and_limited(tmp_path, events_schema, change, message):
    names = ["src_addr", "dst_addr", "ip_version", "event_time", "rtt"]
    rows = [list(row) for row in pings(3, mean=10) if row[2] == 4] or pytest.fail("no IPv4")
    rows = rows + [["10.7.0.9", *row[1:]] for row in pings(3, mean=10) if row[2] == 4]
    for name, value in change.items():
        rows[2][names.index(name)] = value
    path = write_csv(tmp_path, rows)
    with pytest.raises(headwater.DataError) as error:
        headwater.prepare(path, events_schema, tmp_path / "pings.db")
    assert message.replace("'", '"') in str(error.value)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("pings.db")]
    lenient = tomllib.loads(SCHEMA)
    lenient["events"]["dropped_share"] = 0.5
    if "rtt" not in change or change["rtt"] != "fast":
        report = headwater.prepare(path, lenient, tmp_path / "pings.db")
        assert report["dropped_count"] == 1
        assert message.split(";")[0] in report["remarks"][0]
        assert report["event_count"] == len(rows) - 1


def test_a_blank_destination_is_the_unspecified_address(tmp_path, events_schema):
    rows = [list(row) for row in pings(3, mean=10)]
    rows[1][1] = ""
    report = headwater.prepare(write_csv(tmp_path, rows), events_schema, tmp_path / "pings.db")
    assert report["dropped_count"] == 0
    assert "without an address" in report["remarks"][0]
    with headwater.Events(tmp_path / "pings.db", packing=False, batch_size=4) as events:
        text = "".join(
            events.draw(row, split=split).text
            for split in ("train", "test")
            for row in range(events.row_count(split) * 20)
        )
    assert re.search(r"destination (0\.0\.0\.0|::)(,|\n)", text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"codec": "latency"}, 'codec: expected "latency-v1" or "fields-v1", found "latency"'),
        ({"columns": {"dst": "dst_addr"}}, 'found none for "rtt"; add rtt = "its column"'),
        ({"columns": {"dst": "dst_addr", "rtt": "rtt", "famly": "x"}}, 'did you mean "family"?'),
        ({"split": {"train": 0.5}}, "split ratios of 0 or more that add up to 1"),
        ({"row_bytes": 0}, "row_bytes: expected 1,024 to 2^40 bytes, found 0"),
        ({"dropped_share": 2}, "dropped_share: expected a share from 0 to 1, found 2"),
        ({"source": "ping"}, "ping"),
        ({"entity": "src_adr"}, 'there is no column "src_adr"; did you mean "src_addr"?'),
    ],
)
def test_an_invalid_event_schema_is_rejected_with_a_remedy(tmp_path, change, message):
    schema = tomllib.loads(SCHEMA)
    schema["events"] |= change
    with pytest.raises(headwater.HeadwaterError) as error:
        headwater.prepare(write_csv(tmp_path, pings(3)), schema, tmp_path / "pings.db")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"sequence_length": 47}, "sequence_length: expected 48 to 32768 tokens, found 47"),
        ({"batch_size": 0}, "batch_size: expected at least 1 row"),
        ({"dtype": "int64"}, 'expected dtype to be "int32" or "uint16", found "int64"'),
        ({"seed": -1}, "seed: expected a number from 0 to 18446744073709551615, found -1"),
        ({"rank": 2, "world_size": 2}, "rank 2 of 2"),
    ],
)
def test_invalid_event_settings_are_rejected(events_path, setting, message):
    with pytest.raises(headwater.InvalidArgument) as error:
        headwater.Events(events_path, **setting)
    assert message in str(error.value)


def test_stores_of_another_kind_are_rejected(events_path, store_path):
    with pytest.raises(
        headwater.NotOurs, match="found a store of events; open it with headwater.E"
    ):
        headwater.Sampler(events_path)
    with pytest.raises(
        headwater.NotOurs, match="found a store of tables; open it with headwater.S"
    ):
        headwater.Events(store_path)


def test_use_after_shutdown_and_an_empty_split_are_rejected(tmp_path):
    schema = tomllib.loads(SCHEMA)
    schema["events"]["split"] = {"train": 1.0, "val": 0.0, "test": 0.0}
    headwater.prepare(write_csv(tmp_path, pings(3)), schema, tmp_path / "pings.db")
    events = headwater.Events(tmp_path / "pings.db", **SETTINGS)
    with pytest.raises(headwater.InvalidArgument, match="the test split has no events"):
        events.next_batch("test")
    with pytest.raises(headwater.InvalidArgument, match="the val split has no events"):
        events.evaluate("val")
    with pytest.raises(headwater.InvalidArgument, match="the test split has no events"):
        events.next_batch("test")
    with pytest.raises(headwater.InvalidArgument, match="the test split has no events"):
        events.seek(5, "test")
    next(events)
    events.shutdown()
    with pytest.raises(headwater.SamplerShutdown):
        next(events)


def printed(script, store):
    """The output of a Python program that gets the path of a store."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, store],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


def test_a_source_for_grain_opens_the_store_again_in_a_forked_child(events_path):
    pytest.importorskip("grain")
    script = (
        "import os, sys\n"
        "from headwater.grain import EventsSource\n"
        "source = EventsSource(sys.argv[1], sequence_length=128)\n"
        "expected = source[3]['inputs'].tolist()\n"
        "if os.fork() == 0:\n"
        "    print(source[3]['inputs'].tolist() == expected, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "print(source[3]['inputs'].tolist() == expected)\n"
    )
    output = printed(script, events_path)
    assert output.split() == ["True", "True"]


def test_booleans_and_integers_without_a_unit_are_told(tmp_path, events_schema):
    polars = pytest.importorskip("polars")
    log = polars.DataFrame(
        {
            "src_addr": ["10.0.0.1"],
            "dst_addr": ["10.0.0.2"],
            "event_time": [1],
            "ip_version": [4],
            "rtt": [True],
        }
    )
    with pytest.raises(headwater.DataError, match="expected a number of milliseconds, found bool"):
        headwater.prepare({"pings": log}, events_schema, tmp_path / "out")
    (tmp_path / "no-unit.toml").write_text(SCHEMA.replace(', unit = "us"', ""))
    data = write_csv(tmp_path, pings(2))
    with pytest.raises(
        headwater.DataError, match='an integer since 1970 needs its unit, as in .*"s"'
    ):
        headwater.prepare(data, tmp_path / "no-unit.toml", tmp_path / "out")
    for option in (
        {"dimension": 64},
        {"text_vectors": False},
        {"text_vectors": "int8"},
        {"embedder": lambda texts: texts},
    ):
        with pytest.raises(headwater.InvalidArgument, match="expected no embedder, because events"):
            headwater.prepare(data, events_schema, tmp_path / "out", **option)


def test_columns_of_nulls_and_of_wide_integers_are_read(tmp_path):
    polars = pytest.importorskip("polars")
    schema = {
        "database": "log",
        "events": {
            "source": "log",
            "codec": "fields-v1",
            "entity": "card",
            "time": {"column": "at", "unit": "s"},
            "fields": {"shop": "category", "amount": "number"},
            "split": {"train": 1.0, "test": 0.0},
        },
    }
    used = {"card": ["a", "b"], "at": [1751328000, 1751328060]}
    shops = polars.Series(["x", "y"])
    for name, shop, amount in [
        ("nulls", polars.Series([None, None]), polars.Series([None, None])),
        ("wide", shops, polars.Series([1, 2**100], dtype=polars.Int128)),
    ]:
        log = polars.DataFrame({**used, "shop": shop, "amount": amount, "unused": [None, None]})
        for form in (log, log.lazy()):
            out = tmp_path / f"{name} {type(form).__name__}.db"
            report = headwater.prepare({"log": form}, schema, out)
            assert report["event_count"] == 2
    with headwater.Events(tmp_path / "nulls DataFrame.db", batch_size=1) as events:
        batch = next(events)
        first = events.decode(batch["inputs"][batch["inputs_segmentation"] == 1].tolist())
    assert {field["name"] for event in first for field in event["fields"]} <= {"time"}


def test_a_dictionary_with_a_wrong_key_is_told_by_the_key(tmp_path):
    schema = tomllib.loads(SCHEMA)
    schema["events"]["entty"] = schema["events"].pop("entity")
    with pytest.raises(headwater.SchemaError) as error:
        headwater.prepare(write_csv(tmp_path, pings(3)), schema, tmp_path / "pings.db")
    assert str(error.value).startswith("the schema's dictionary: events: entty: expected one of")
    assert "line " not in str(error.value)


def test_an_audit_of_events_says_what_it_is_for(events_path):
    with pytest.raises(headwater.NotOurs, match="found a store of events, .* no tasks"):
        headwater.audit(events_path)


def test_a_forked_child_gets_an_error_and_does_not_hang(events_path):
    script = (
        "import os, sys, headwater\n"
        "events = headwater.Events(sys.argv[1], batch_size=4)\n"
        "next(events)\n"
        "if os.fork() == 0:\n"
        "    try:\n"
        "        next(events)\n"
        "    except headwater.InvalidArgument as error:\n"
        "        print(error, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    output = printed(script, events_path)
    assert "this sampler was made in process" in output


def test_a_row_is_drawn_with_its_segments_fields_and_times(events_path, tmp_path):
    with headwater.Events(events_path, **SETTINGS) as events:
        page = events.draw(0, tmp_path / "row.html")
        segments = int(next(events)["inputs_segmentation"][0].max())
    assert page.text.count("\nsegment ") == segments
    assert page.text.startswith("pings: train row 0; epoch 0, item ")
    html = (tmp_path / "row.html").read_text()
    assert html == page.html
    assert html.count("<h2>Segment ") == segments
    assert all(f'title="{name}"' in html for name in ("source", "destination", "rtt_ms"))


def test_a_notebook_shows_the_rows_of_each_split(events_path):
    with headwater.Events(events_path) as events:
        shown = events._repr_html_()
        assert f"<caption>{html.escape(repr(events))}</caption>" in shown
        assert "<th>split</th><th>rows an epoch</th>" in shown
        for split in ("train", "val", "test"):
            assert f"<td>{split}</td><td>{events.row_count(split):,}</td>" in shown


def test_the_command_prepares_verifies_and_inspects_events(tmp_path, events_schema):
    def run(*arguments, status=0):
        done = subprocess.run(["headwater", *arguments], capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    data, store = write_csv(tmp_path, pings()), tmp_path / "pings.db"
    out = run("prepare", data, "--schema", events_schema, "--out", store)
    assert " events of 40 entities in " in out
    assert "is there already" in run(
        "prepare", data, "--schema", events_schema, "--out", store, status=1
    )
    run("prepare", data, "--schema", events_schema, "--out", store, "--force")
    assert ": OK, 4 files, " in run("verify", store)
    assert "codec latency-v1, 267 tokens; an entity is a value of src_addr" in run("inspect", store)
    bench = ("bench", store, "--batches", "3", "--batch-size", "8", "--sequence-length", "256")
    measured, again = (json.loads(run(*bench)) for _ in range(2))
    assert measured["digest"] == again["digest"]
    assert 1 < measured["contexts_per_row"] < 30
    assert 0 < measured["padding_share"] < 47 / 256
    assert "store of tables for --max-rows, found a store of events" in run(
        *bench, "--max-rows", "3", status=1
    )
    assert "segment 1: " in run("inspect", store, "--token-row", "5", "--split", "test")
    page = tmp_path / "row.html"
    assert "open it in a browser" in run("inspect", store, "--token-row", "5", "--html", page)
    refused = run("inspect", store, "--table", "pings", status=1)
    assert "found a store of events; use --token-row" in refused
    assert "found a store of events" in run("audit", store, status=3)
    for option in (["--no-text-vectors"], ["--text-vectors", "int8"]):
        assert "no texts" in run(
            "prepare", data, "--schema", events_schema, "--out", tmp_path / "x", *option, status=1
        )

"""A plain twin of `headwater.Events`, written from events/FORMAT.md and plan/FORMAT.md alone."""

from __future__ import annotations

import json
import math
import struct
from itertools import permutations
from pathlib import Path

import numpy as np

MASK = 2**64 - 1
NAME = 0xD624E7E0DCAFF975  # the identity of "events"
SPLITS = ("train", "val", "test")
ORDERS = {count: list(permutations(range(count))) for count in (3, 4)}


def philox(key, counter):
    """Philox4x64-10, one block of four words."""
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for _ in range(10):
        p0 = 0xD2E7470EE14C6C93 * c0
        p1 = 0xCA5A826395121157 * c2
        c0, c1, c2, c3 = (
            (p1 >> 64) ^ c1 ^ k0,
            p1 & MASK,
            (p0 >> 64) ^ c3 ^ k1,
            p0 & MASK,
        )
        k0 = (k0 + 0x9E3779B97F4A7C15) & MASK
        k1 = (k1 + 0xBB67AE8584CAA73B) & MASK
    return c0, c1, c2, c3


class Stream:
    """The words of a seed, a purpose and an identity."""

    def __init__(self, seed, purpose, identity):
        self.key, self.identity, self.index, self.block = (seed, purpose), identity, 0, ()

    def word(self):
        lane = self.index % 4
        if lane == 0:
            self.block = philox(self.key, (self.index // 4, *self.identity))
        self.index += 1
        return self.block[lane]

    def below(self, bound):
        product = self.word() * bound
        while product & MASK < (2**64 - bound) % bound:
            product = self.word() * bound
        return product >> 64


def shuffle(count, seed, identity):
    """The item at each position of a permutation."""
    left_count = math.isqrt(count - 1) + 1 if count > 1 else 1
    right_count = -(-count // left_count)
    rounds = 24 if count < 1024 else 12
    stream = Stream(seed, 1, identity)
    keys = [stream.word() for _ in range(rounds)]

    def scatter(half, key, bound):
        mixed = ((half ^ key) * 0xFF51AFD7ED558CCD) & MASK
        mixed ^= mixed >> 32
        mixed = (mixed * 0xC4CEB9FE1A85EC53) & MASK
        return (mixed * bound) >> 64

    def at(position):
        item = position
        while True:
            left, right = divmod(item, right_count)
            for even in range(0, rounds, 2):
                left = (left + scatter(right, keys[even], left_count)) % left_count
                right = (right + scatter(left, keys[even + 1], right_count)) % right_count
            item = left * right_count + right
            if item < count:
                return item

    return at


def sections(path):
    """The sections of a file in the format of container/FORMAT.md."""
    data = Path(path).read_bytes()
    assert data[:8] == b"HWSTORE\0"
    count, table = struct.unpack_from("<IQ", data, 12)
    found = {}
    for entry in range(count):
        at = table + 64 * entry
        name = data[at : at + 24].rstrip(b"\0").decode()
        start, length = struct.unpack_from("<QQ", data, at + 24)
        found[name] = data[start : start + length]
    return found


class Row:
    """A row of the store: its events as (time, head, value), in order."""

    def __init__(self, record, events, codec):
        at, self.items_before, self.entity, _, count, heads, self.form = struct.unpack(
            "<QQIIIHH", record
        )
        head, value = codec.sizes(self.form)
        self.heads = [events[at + i * head :][:head] for i in range(heads)]
        at += heads * head
        size = 10 + value
        raw = [events[at + i * size :][:size] for i in range(count)]
        self.events = [(*struct.unpack_from("<qH", one), one[10:]) for one in raw]
        self.items = min(max(-(-count // 30), 1), 16)


class Latency:
    """The codec `latency-v1`."""

    room = 48

    def sizes(self, form):
        """The bytes of a head and of a value."""
        address = 4 if form == 4 else 16
        return address, address + 2

    def bound(self, row, event):
        """The most tokens of an event without its time."""
        failed = event[2][-2:] == b"\xff\xff"
        address = 4 if row.form == 4 else 16
        return 1 + 2 * (1 + address) + (1 if failed else 3)

    def tokens(self, row, event, time, words):
        """The tokens of one event."""
        is_v6 = int(row.form == 6)
        source, destination = row.heads[event[1]], event[2][:-2]
        (code,) = struct.unpack("<H", event[2][-2:])
        blocks = [of_bytes(11, 1 + is_v6, source), of_bytes(11, 3 + is_v6, destination)]
        blocks.append([10] if code == 0xFFFF else of_bytes(11, 8, struct.pack(">H", code)))
        if time is not None:
            blocks.append(of_time(11, 5, time))
        orders = ORDERS[len(blocks)]
        return [0, *(token for at in orders[words.below(len(orders))] for token in blocks[at])]


class Fields:
    """The codec `fields-v1`."""

    def __init__(self, fields):
        self.fields = [
            (
                field["role"],
                field["kind"]["type"],
                field["kind"].get("first"),
                field["kind"].get("max_bytes", 0),
            )
            for field in fields
        ]
        most = {"category": 3, "number": 3, "time": 3, "bytes": 2}
        self.room = 10 + sum(most[kind] + longest for _, kind, _, longest in self.fields)

    def sizes(self, form):
        assert form == 0
        stored = {"number": 2, "time": 2, "bytes": 1, "category": 2}
        texts = sum(kind == "category" and longest > 0 for _, kind, _, longest in self.fields)
        return 0, texts + sum(stored[kind] + longest for _, kind, _, longest in self.fields)

    def blocks(self, value):
        """The tokens of each field that is not NULL."""
        found, at = [], 0
        for role, kind, first, longest in self.fields:
            text = None
            if kind != "bytes":
                (code,) = struct.unpack_from("<H", value, at)
                at += 2
            if kind == "bytes" or (kind == "category" and longest > 0):
                text = value[at + 1 : at + 1 + value[at]] if value[at] < 255 else None
                at += 1 + longest
            if kind in ("number", "time") and code != 0xFFFF:
                found.append(of_bytes(16, role, struct.pack(">H", code)))
            elif kind == "bytes" and text is not None:
                found.append(of_bytes(16, role, bytes([len(text)]) + text))
            elif kind == "category" and code == 0xFFFF:
                found.append([role, *of_bytes(16, 4, bytes([len(text or b"")]) + (text or b""))])
            elif kind == "category" and code > 0:
                found.append([role, first + code - 1])
        return found

    def bound(self, row, event):
        return 1 + sum(len(block) for block in self.blocks(event[2]))

    def tokens(self, row, event, time, words):
        blocks = self.blocks(event[2])
        if time is not None:
            blocks.append(of_time(16, 1, time))
        for place in range(len(blocks) - 1):
            other = place + words.below(len(blocks) - place)
            blocks[place], blocks[other] = blocks[other], blocks[place]
        return [0, *(token for block in blocks for token in block)]


def of_bytes(first, role, values):
    """A role and bytes, of which byte 0 is the token `first`."""
    return [role, *(first + value for value in values)]


def of_time(first, role, time):
    """The tokens of a time; `role` is that of an absolute one, before those of differences."""
    kind, seconds = time
    if kind == "absolute":
        return of_bytes(first, role, struct.pack(">Q", seconds))
    if seconds < 256:
        return of_bytes(first, role + 1, bytes([seconds]))
    return of_bytes(first, role + 2, struct.pack(">I", seconds))


class Twin:
    """The token rows of a store."""

    def __init__(self, path, *, seed, sequence_length, packing):
        self.metadata = json.loads((Path(path) / "metadata.json").read_text())
        records = sections(Path(path) / "rows.bin")["rows"]
        events = sections(Path(path) / "events.bin")["events"]
        is_latency = self.metadata["codec"] == "latency-v1"
        self.codec = Latency() if is_latency else Fields(self.metadata["fields"])
        starts = range(0, len(records), 32)
        self.rows = [Row(records[at : at + 32], events, self.codec) for at in starts]
        self.seed, self.length, self.packing = seed, sequence_length, packing

    def items(self, split):
        """The row of each item of a split, in order."""
        counts = self.metadata["splits"]
        first = sum(one["rows"] for one in counts[:split])
        rows = self.rows[first : first + counts[split]["rows"]]
        return [row for row in rows for _ in range(row.items)]

    def row(self, split, index):
        """The tensors of one row of a split's stream."""
        split = SPLITS.index(split)
        items = self.items(split)
        epoch, position = divmod(index, len(items))
        item = shuffle(len(items), self.seed, (NAME, split, epoch))(position)
        return self.tensors(items, split, epoch, item, self.packing)

    def passed(self, split):
        """The rows of a pass over a split."""
        split = SPLITS.index(split)
        items = self.items(split)
        return [self.tensors(items, split, 0, item, False) for item in range(len(items))]

    def latest(self, entity, before, length):
        """The tokens of the latest events of an entity."""
        words = Stream(self.seed, 10, (3, entity, 0))
        rows = [row for row in self.rows if row.entity == entity]
        events = [
            (event[0], number, place)
            for number, row in enumerate(rows)
            for place, event in enumerate(row.events)
            if event[0] < before
        ]
        chosen, room = [], length - 4
        for time, number, place in sorted(events, reverse=True):
            row = rows[number]
            if chosen and chosen[-1][0].form != row.form:
                continue
            bound = self.codec.bound(row, row.events[place]) + 5
            if bound > room or (chosen and chosen[-1][1] // 10**6 - time // 10**6 >= 2**32):
                break
            room -= bound
            chosen.append((row, time, row.events[place]))
        tokens, previous = [], None
        for row, time, event in reversed(chosen):
            now = time // 1_000_000
            told = ("absolute", now) if previous is None else ("since", now - previous)
            tokens += self.codec.tokens(row, event, told, words)
            previous = now
        return tokens

    def tensors(self, items, split, epoch, item, packing):
        words = Stream(self.seed, 10, (split, epoch, item))
        segments = [context(self.codec, items[item], self.length, words)]
        free = self.length - len(segments[0])
        while packing and free >= self.codec.room:
            filler = items[words.below(len(items))]
            segments.append(context(self.codec, filler, free, words))
            free -= len(segments[-1])
        names = ("inputs", "targets", "inputs_position", "targets_position")
        names += ("inputs_segmentation", "targets_segmentation")
        tensors = {name: np.zeros(self.length, np.int32) for name in names}
        start = 0
        for number, tokens in enumerate(segments, 1):
            end = start + len(tokens)
            tensors["inputs"][start:end] = tokens
            tensors["inputs_position"][start:end] = range(len(tokens))
            tensors["inputs_segmentation"][start:end] = number
            tensors["targets"][start : end - 1] = tokens[1:]
            tensors["targets_position"][start : end - 1] = range(1, len(tokens))
            tensors["targets_segmentation"][start : end - 1] = number
            start = end
        return tensors | {"entity": items[item].entity, "weight": 1.0}


def context(codec, row, room, words):
    """The tokens of a context of a row."""
    count = len(row.events)
    uniform = (words.word() >> 11) / 2**53
    length = min(max(math.floor(math.exp(uniform * math.log(count + 1))), 1), count)
    window = list(range(count))[words.below(count - length + 1) :][:length]
    mode = words.below(10)
    timed = mode < 7
    room -= 4 if timed else 0
    chosen = []
    for place in range(length):
        other = place + words.below(length - place)
        window[place], window[other] = window[other], window[place]
        bound = codec.bound(row, row.events[window[place]]) + (5 if timed else 0)
        if bound > room:
            break
        room -= bound
        chosen.append(window[place])
    untimed_count = 0 if mode < 4 else len(chosen)
    if 4 <= mode < 7:
        untimed_count = max(1, len(chosen) * (10 + words.below(81)) // 100)
    untimed, with_time = chosen[:untimed_count], sorted(chosen[untimed_count:])
    tokens, previous = [], None
    while untimed or with_time:
        takes_untimed = bool(untimed)
        if untimed and with_time:
            takes_untimed = words.below(len(untimed) + len(with_time)) < len(untimed)
        event = row.events[(untimed if takes_untimed else with_time).pop(0)]
        time = None
        if not takes_untimed:
            now = event[0] // 1_000_000
            time = ("absolute", now) if previous is None else ("since", now - previous)
            previous = now
        tokens += codec.tokens(row, event, time, words)
    return tokens

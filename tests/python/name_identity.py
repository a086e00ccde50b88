"""The identity of a name, from the specification of BLAKE3 alone; for names of at most 64 bytes."""

from __future__ import annotations

IV = (
    0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19,
)  # fmt: skip
ORDER = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
# One block that starts and ends the only chunk of the root.
FLAGS = 1 | 2 | 8
LANES = (
    (0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
    (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14),
)  # fmt: skip


def name_identity(name: str) -> int:
    """Returns the first eight bytes, little endian, of the BLAKE3 of a name."""
    data = name.encode()
    assert len(data) <= 64
    block = data.ljust(64, b"\0")
    words = [int.from_bytes(block[at : at + 4], "little") for at in range(0, 64, 4)]
    state = [*IV, *IV[:4], 0, 0, len(data), FLAGS]

    def turned(word: int, by: int) -> int:
        return (word >> by | word << (32 - by)) & 0xFFFFFFFF

    for _ in range(7):
        for lane, (a, b, c, d) in enumerate(LANES):
            for word, (first, second) in zip(
                words[2 * lane : 2 * lane + 2], ((16, 12), (8, 7)), strict=True
            ):
                state[a] = (state[a] + state[b] + word) & 0xFFFFFFFF
                state[d] = turned(state[d] ^ state[a], first)
                state[c] = (state[c] + state[d]) & 0xFFFFFFFF
                state[b] = turned(state[b] ^ state[c], second)
        words = [words[at] for at in ORDER]
    return (state[0] ^ state[8]) | (state[1] ^ state[9]) << 32

"""Mutations of bytes: what protocols and their parsers are known to stumble over."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

LONGEST: Final = 20_000
"""Bytes of a mutated input."""


def _flip(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _replace(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    data[random.randrange(len(data))] = random.choice((0, 9, 10, 13, 32, 34, 45, 48, 92, 127, 128, 255))


def _remove(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    begin = random.randrange(len(data))
    del data[begin : begin + random.randint(1, 16)]


def _repeat(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    begin = random.randrange(len(data))
    part = bytes(data[begin : begin + random.randint(1, 64)])
    data[begin:begin] = part * random.choice((1, 2, 50))


def _truncate(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[random.randrange(len(data)) :]


def _insert(random: Random, data: bytearray, words: Sequence[bytes]) -> None:
    begin = random.randrange(len(data) + 1)
    data[begin:begin] = random.choice(words)


def _noise(random: Random, data: bytearray, _: Sequence[bytes]) -> None:
    begin = random.randrange(len(data) + 1)
    data[begin:begin] = random.randbytes(random.choice((1, 4, 64)))


_MUTATIONS: Final[tuple[Callable[[Random, bytearray, Sequence[bytes]], None], ...]] = (
    *(_flip, _replace, _remove, _repeat, _truncate, _noise),
    *(_insert, _insert, _insert),
)


def mutated(random: Random, data: bytes, words: Sequence[bytes], *, begin: int = 0) -> bytes:
    """Up to six changes of what lies behind `begin`; one input in ten stays as it is."""
    rest = bytearray(data[begin:])
    for _ in range(random.choice((0, 1, 1, 1, 2, 2, 3, 4, 5, 6))):
        if rest:
            random.choice(_MUTATIONS)(random, rest, words)
    return data[:begin] + bytes(rest[:LONGEST])

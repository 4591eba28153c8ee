"""Header blocks mean what the library hpack says that they mean, known or not."""

from collections.abc import Mapping
from random import Random

import pytest
from hpack import Decoder, Encoder, HPACKError
from tailbound_runtime.http2_blocks import BlockDecoder, Blocks, checked
from tailbound_runtime.http2_frames import Http2Error

NAMES = (":path", ":method", "te", "content-type", "x-request-id", "accept", "")
VALUES = ("", "a", "POST", "trailers", "x" * 200, "y" * 5000, "ü\0\r")


def mutated(random: Random, block: bytes) -> bytes:
    changed = bytearray(block)
    for _ in range(random.choice((0, 0, 1, 3))):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed[: random.choice((len(changed), len(changed), random.randrange(len(changed) + 1)))])


@pytest.mark.parametrize("seed", range(2))
def test_blocks_are_decoded_as_the_library_does(seed: int) -> None:
    random = Random(seed)
    agreed = failed = 0
    for _ in range(120):
        encoder, ours, theirs = Encoder(), BlockDecoder(), Decoder(32 * 2**10)
        for _ in range(random.randrange(1, 12)):
            if random.random() < 0.2:
                encoder.header_table_size = random.choice((0, 100, 4096))
            headers = [(random.choice(NAMES), random.choice(VALUES)) for _ in range(random.randrange(1, 9))]
            block = mutated(random, encoder.encode(headers, huffman=random.random() < 0.5))
            before = list(theirs.header_table.dynamic_entries), theirs.header_table.maxsize
            changes = ours.changes
            try:
                expected = [(bytes(name), bytes(value)) for name, value in theirs.decode(block, raw=True)]
            except HPACKError:
                with pytest.raises((HPACKError, Http2Error)):
                    ours.decode(block)
                failed += 1
                break
            assert ours.decode(block) == expected
            if (list(theirs.header_table.dynamic_entries), theirs.header_table.maxsize) != before:
                assert ours.changes > changes
            agreed += 1
    assert min(agreed, failed) > 40


def test_what_was_made_of_a_block_is_kept_while_the_table_stays() -> None:
    made: list[Mapping[bytes, bytes] | None] = []

    def make(headers: Mapping[bytes, bytes] | None) -> int:
        made.append(headers)
        return len(made)

    blocks, entry = Blocks(make), b"\x40\x01a\x01%c"
    first = blocks.read(entry % ord("1"))
    assert [blocks.read(b"\xbe") for _ in range(3)] == [first + 1] * 3
    blocks.read(entry % ord("2"))
    assert blocks.read(b"\xbe") == first + 3
    assert made[-1] == {b"a": b"2"}
    blocks.read(b"\x20")  # no table
    with pytest.raises(Http2Error):
        blocks.read(b"\xbe")


def test_values_of_one_name_are_joined() -> None:
    assert checked([(b"a", b"1"), (b"b", b""), (b"a", b"2")]) == {b"a": b"1,2", b"b": b""}

"""A damaged stream is an error, never a wrong array, a crash or a large allocation."""

from __future__ import annotations

import random
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scitoolkit.compression import compress, decompress
from scitoolkit.compression.container import MAGIC, pack, read_header, unpack
from scitoolkit.core.errors import DataError, ScitoolkitError

FIELD = np.sin(np.arange(4096, dtype="f4")).reshape(16, 16, 16)
FIELD[0, 0, :3] = np.nan


@pytest.fixture(scope="module")
def samples() -> list[tuple[bytes, np.ndarray]]:
    made = [
        compress(FIELD, rel=1e-2),
        compress(FIELD, rel=1e-2, codec="sz3", enhancer="linear"),
        compress(FIELD, pw_rel=1e-1),
        compress(np.arange(100), abs=0),
    ]
    return [(stream, decompress(stream)) for stream in made]


def damaged(stream: bytes, chance: random.Random) -> bytes:
    data = bytearray(stream)
    kind = chance.randrange(4)
    if kind == 0:
        for _ in range(chance.randint(1, 8)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    elif kind == 1:
        del data[chance.randrange(len(data)) :]
    elif kind == 2:
        at = chance.randrange(len(data))
        data[at:at] = chance.randbytes(chance.randint(1, 9))
    else:
        i, j = sorted(chance.sample(range(len(data)), 2))
        data[i:j] = data[i:j][::-1]
    return bytes(data)


def test_random_damage_is_always_noticed(samples):
    chance = random.Random(1)
    for _ in range(600):
        stream, expected = chance.choice(samples)
        broken = damaged(stream, chance)
        if broken == stream:
            continue
        with pytest.raises(DataError):
            decompress(broken)
        assert decompress(stream).tobytes() == expected.tobytes()


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused(data):
    with pytest.raises(DataError):
        decompress(data)
    with pytest.raises(DataError):
        decompress(MAGIC + b"\x01" + data)


def test_what_is_no_bytes_is_refused():
    with pytest.raises(DataError, match="got str"):
        decompress("file.sci")


def test_another_version_is_named():
    stream = bytearray(compress(FIELD, rel=1e-2))
    stream[4] = 9
    with pytest.raises(DataError, match="format version 9"):
        decompress(stream)


def forged(**changes) -> bytes:
    """Return a stream with right checksums whose header was changed."""
    header, sections = unpack(compress(FIELD, rel=1e-2))
    return pack({**header, **changes}, {k: bytes(v) for k, v in sections.items()})


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": [1 << 40, 1 << 20]},
        {"shape": [1 << 62, 1 << 62, 1 << 62]},
        {"shape": [-4]},
        {"shape": "no"},
        {"shape": [1] * 40},
        {"shape": None},
        {"dtype": "O"},
        {"dtype": "V999999999999"},
        {"dtype": "<c8"},
        {"dtype": 3},
        {"base": {"name": "bzip"}},
        {"base": {}},
        {"base": None},
        {"base": {"name": "dyadic"}},
        {"enhancer": {"name": "other", "clip": 1}},
        {"enhancer": {"name": "linear"}},
        {"bound": {"mode": "rel", "value": "x"}},
        {"range": []},
        {"slabs": 3},
    ],
    ids=str,
)
def test_a_hostile_header_with_right_checksums_is_refused_without_allocating(changes):
    stream = forged(**changes)
    tracemalloc.start()
    with pytest.raises(ScitoolkitError):
        decompress(stream)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 22


def test_a_limit_of_the_caller_is_kept():
    stream = compress(FIELD, rel=1e-2)
    with pytest.raises(DataError, match="would take 16384 bytes"):
        decompress(stream, max_bytes=16383)
    assert decompress(stream, max_bytes=16384).shape == FIELD.shape


def test_the_header_can_be_read_without_the_sections():
    stream = compress(FIELD, rel=1e-2)
    assert read_header(stream[:-20])["shape"] == [16, 16, 16]


def test_the_format_of_version_1_stays_readable():
    """A stream written by the first release; fails when the format changes without a version."""
    header, sections = unpack(bytes.fromhex(GOLDEN))
    assert header["shape"] == [4]
    assert bytes(sections["base"]) == b"xyz"


GOLDEN = "5363694301fe612cc20aab86fb199460b0a453000367ba8eeb78797a"

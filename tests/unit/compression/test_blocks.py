"""Blocks: the bound, the second decoder, parts of a field, damage, threads."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from scitoolkit.compression import (
    Bound,
    Options,
    compress,
    compress_slabs,
    decompress,
    decompress_region,
    inspect_stream,
)
from scitoolkit.compression.native import blocks
from scitoolkit.core.errors import ConfigError, DataError
from tests.unit.compression import slow_decoder

FROZEN = Path(__file__).parents[2] / "golden" / "blocks_v1"
VECTORS = json.loads((FROZEN / "vectors.json").read_text())
SHAPES = [(1,), (5000,), (3, 1, 40), (70, 90), (9, 17, 33), (1, 65, 2), (2, 3, 17, 18)]


def field_of(shape, dtype=np.float32):
    rng = np.random.default_rng(5)
    axes = np.meshgrid(*(np.linspace(0, 4, n) for n in shape), indexing="ij")
    smooth = sum(np.sin((i + 1) * a) for i, a in enumerate(axes))
    return (smooth + rng.normal(0, 0.02, shape)).astype(dtype)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 8³, 16 x 32 or 512 points, so that small fields have many."""
    monkeypatch.setattr(blocks, "POINTS", 512)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bound", [0.3, 1e-3, 1e-7])
def test_blocks_keep_the_bound_and_the_second_decoder_agrees(small_blocks, shape, dtype, bound):
    x = field_of(shape, dtype)
    x.reshape(-1)[x.size // 2] = 1e5  # larger than any integer of the coder at the least bound
    data, decoded, error = blocks.encode(x, bound)
    assert np.abs(x.astype(np.float64) - decoded).max() == error <= bound
    read = blocks.CodedBlocks.read(data, shape, x.dtype, bound)
    assert read.decode(np.empty_like(x)).tobytes() == decoded.tobytes()
    if bound != 1e-3 or x.size < 2000:
        assert slow_decoder.decode_blocks(data, shape, dtype, bound).tobytes() == decoded.tobytes()


@pytest.mark.parametrize("name", sorted(VECTORS))
def test_frozen_vectors_decode_to_the_same_bits(name):
    about, data = VECTORS[name], (FROZEN / f"{name}.bin").read_bytes()
    shape, dtype = tuple(about["shape"]), np.dtype(about["dtype"])
    values = np.empty(shape, dtype)
    blocks.CodedBlocks.read(data, shape, dtype, about["bound"]).decode(values)
    assert hashlib.sha256(values.tobytes()).hexdigest() == about["sha256"]
    slow = slow_decoder.decode_blocks(data, shape, dtype, about["bound"])
    assert slow.tobytes() == values.tobytes()


def test_any_number_of_threads_writes_the_same_bytes(small_blocks, monkeypatch):
    x, found = field_of((40, 41, 42)), set()
    for number in ("1", "3"):
        monkeypatch.setenv("OMP_NUM_THREADS", number)
        data, decoded, _ = blocks.encode(x, 1e-2)
        back = blocks.CodedBlocks.read(data, x.shape, x.dtype, 1e-2).decode(np.empty_like(x))
        found.add(data + decoded.tobytes() + back.tobytes())
    assert len(found) == 1


def test_a_part_decodes_its_blocks_alone(small_blocks, monkeypatch):
    x = field_of((40, 20, 30))
    slabs = compress_slabs(x, Bound("abs", 1e-2), Options(objective="speed"), slab_bytes=16 * 2400)
    for stream in (slabs, compress(x, abs=1e-2, objective="speed"), compress(x, abs=1e-2)):
        whole, part = decompress(stream), (slice(7, 26), slice(3, 11), slice(-9, None))
        assert (decompress_region(stream, *part) == whole[part]).all()
        assert (decompress_region(stream, slice(39, 40)) == whole[39:]).all()
        assert decompress_region(stream, slice(4, 2)).shape == (0, 20, 30)
    decoded = []
    one = blocks.CodedBlocks._decode
    monkeypatch.setattr(
        blocks.CodedBlocks, "_decode", lambda s, n, *rest: (decoded.append(n), one(s, n, *rest))[1]
    )
    decompress_region(slabs, slice(17, 20), slice(8, 16), slice(0, 8))
    assert len(decoded) == 1
    with pytest.raises(ConfigError, match="without steps"):
        decompress_region(slabs, slice(0, 9, 2))
    for wrong in ((slice(2),), 3, ...):
        with pytest.raises(ConfigError, match="one slice per dim"):
            decompress_region(slabs, wrong)  # type: ignore[arg-type]


def test_special_values_come_back_in_a_part():
    x = field_of((20, 21, 22))
    x[3, 4, 5:9] = np.nan
    stream = compress(x, rel=1e-3, objective="speed")
    assert inspect_stream(stream)["base"]["name"] == "blocks"
    part = decompress_region(stream, slice(2, 6))
    assert np.array_equal(np.isnan(part), np.isnan(x[2:6]))


def test_damaged_blocks_are_an_error(small_blocks):
    x = field_of((18, 17, 16))
    data, decoded, _ = blocks.encode(x, 1e-2)
    chance = np.random.default_rng(1)
    for _ in range(400):
        damaged = bytearray(data)
        for _ in range(chance.integers(1, 4)):
            damaged[chance.integers(0, len(data))] ^= 1 << int(chance.integers(0, 8))
        damaged = damaged[: chance.integers(0, len(data)) if chance.random() < 0.2 else None]
        try:
            read = blocks.CodedBlocks.read(bytes(damaged), x.shape, x.dtype, 1e-2)
            found = read.decode(np.empty_like(x))
        except DataError:
            continue
        assert found.tobytes() == decoded.tobytes()


def test_speed_is_smaller_than_sz3_on_turbulence():
    from pathlib import Path

    from scitoolkit.compression.codecs import codecs

    assert not codecs.get("sz3").unavailable()
    x = np.load(Path(__file__).parents[3] / "datasets/turbulence_sperr/wmag_64.npy")
    for rel in (1e-2, 1e-3, 1e-4):
        bound = rel * float(np.ptp(x))
        stream = compress(x, rel=rel, objective="speed")
        assert np.abs(x - decompress(stream)).max() <= bound
        assert len(stream) <= 0.9 * len(codecs.get("sz3")().encode(x, bound))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("points", [1 << 9, 3 << 17, 1 << 19])
def test_blocks_of_any_size_are_read(monkeypatch, dtype, points):
    """Writers chose 3 x 2^17 points before; rows of 31 and more have vectors, an end and edges."""
    x = field_of((5, 130, 131), dtype)
    x[2, 60:63, 40:90] *= 1e6  # integers with raw bits, and values that are stored verbatim
    monkeypatch.setattr(blocks, "POINTS", points)
    data, decoded, error = blocks.encode(x, 1e-2)
    monkeypatch.undo()
    assert np.abs(x.astype(np.float64) - decoded).max() == error <= 1e-2
    read = blocks.CodedBlocks.read(data, x.shape, x.dtype, 1e-2)
    assert read.decode(np.empty_like(x)).tobytes() == decoded.tobytes()


def test_too_little_memory_is_refused_and_not_overrun(small_blocks):
    x = field_of((9, 17, 33))
    data, _, _ = blocks.encode(x, 1e-2)
    read = blocks.CodedBlocks.read(data, x.shape, x.dtype, 1e-2)
    buffers = blocks._Buffers(read.blocks, x.dtype)
    buffers.workspace = np.empty(1000, np.uint8)
    with pytest.raises(MemoryError):
        read._decode(0, np.empty((8, 8, 8), np.float32), buffers)

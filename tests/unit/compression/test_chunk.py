"""Framed chunks: bounds, special values, byte orders, damage; frozen vectors, other compilers."""

from __future__ import annotations

import ctypes
import hashlib
import json
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import slow_decoder
from sanitizers import require_sanitizer

from scitoolkit.compression.enhancers.group_weights import GroupWeights
from scitoolkit.compression.enhancers.linear import Linear
from scitoolkit.compression.enhancers.network import Network
from scitoolkit.compression.filtered import parameters_of
from scitoolkit.compression.lossless import encode_array
from scitoolkit.compression.native import library
from scitoolkit.compression.native.plugin import FLAGS, filter_options, plugin_source
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.testing.codec import smooth_field

GOLDEN = Path(__file__).parents[2] / "golden"
NUMPY_FILL = 9.969209968386869e36


def with_specials(shape, dtype, fill=-999.0):
    x = smooth_field(shape, dtype)
    flat = x.reshape(-1)
    flat[:: max(x.size // 17, 2)] = fill
    flat[[1, 5, 9]] = np.nan, np.inf, -np.inf
    flat[30:60] = NUMPY_FILL
    return x


@pytest.mark.parametrize("shape", [(700,), (40, 41), (7, 8, 9), (2, 3, 8, 9), (5, 1, 77)])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8"])
def test_chunks_keep_the_bound_and_special_values_bit_for_bit(shape, dtype):
    x = np.ascontiguousarray(with_specials(shape, "f8").astype(dtype))
    parameters = library.chunk_parameters(shape, x.dtype, 1e-3, -999.0)
    data = library.encode_chunk(x, parameters)
    y = library.decode_chunk(data, shape, x.dtype, parameters)
    special = ~np.isfinite(x) | (x == -999) | (x == np.array(NUMPY_FILL, dtype))
    assert y[special].tobytes() == x[special].tobytes()
    assert np.abs(x[~special].astype("f8") - y[~special].astype("f8")).max() <= 1e-3
    assert len(data) < x.nbytes
    assert slow_decoder.decode_chunk(data, shape, x.dtype, 1e-3, -999.0).tobytes() == y.tobytes()


def test_a_valid_value_never_decodes_to_the_fill_value():
    x = np.full((20, 20), 0.0004, np.float32)
    x[3:5] = 0
    x[7] += np.linspace(0, 1, 20, dtype=np.float32)
    parameters = library.chunk_parameters(x.shape, x.dtype, 1e-3, 0.0)
    y = library.decode_chunk(library.encode_chunk(x, parameters), x.shape, x.dtype, parameters)
    assert ((y == 0) == (x == 0)).all()
    assert np.abs(x - y).max() <= 1e-3


KINDS = {"verbatim": 0, "coded": 1, "constant": 2, "lossless": 3, "rounded": 6}


def whole_numbers(shape, dtype):
    rng = np.random.default_rng(5)
    return (2.0**30 + 128 * rng.integers(0, 90, shape)).astype(dtype)


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8"])
@pytest.mark.parametrize("bound", [0.0, 1e-38, 1e-3])
def test_constants_take_some_bytes_whatever_they_are(dtype, bound):
    values = [0.0, -0.0, 0.0718, 1e9, -2.92e5, 83100.0, 999.1, 3e-39, 1e38]
    values += list(np.random.default_rng(0).normal(size=20) * 10.0 ** np.arange(-10, 10))
    for value in values:
        x = np.full((30, 40), value, dtype)
        y, data = coded_and_back(x, bound)
        assert y.tobytes() == x.tobytes()
        assert (data[5], len(data)) == (KINDS["constant"], 21 + x.itemsize)
        x[3:7, 5:] = np.nan
        x[20] = -999
        y, data = coded_and_back(x, bound, -999.0)
        assert y.tobytes() == x.tobytes()
        assert len(data) < 90
    slow = slow_decoder.decode_chunk(data, x.shape, x.dtype, bound, -999.0)
    assert slow.tobytes() == x.tobytes()


def coded_and_back(x, bound, fill=None):
    parameters = library.chunk_parameters(x.shape, x.dtype, bound, fill)
    data = library.encode_chunk(x, parameters)
    return library.decode_chunk(data, x.shape, x.dtype, parameters), data


@pytest.mark.parametrize(
    "shape", [(1,), (3,), (300,), (14, 19), (5, 6, 7), (2, 3, 5, 6), (5, 1, 37)]
)
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8"])
def test_lossless_chunks_keep_every_bit(shape, dtype):
    numbers = with_specials(shape, "f8") if np.prod(shape) > 150 else smooth_field(shape, "f8")
    for x in (np.round(numbers * 50) / 50, np.where(numbers > 0.7, numbers, 0), numbers):
        x = np.ascontiguousarray(x.astype(dtype))
        y, data = coded_and_back(x, 0.0)
        assert y.tobytes() == x.tobytes()
        assert data[5] != KINDS["coded"]
        slow = slow_decoder.decode_chunk(data, shape, x.dtype, 0.0, None)
        assert slow.tobytes() == x.tobytes()


@pytest.mark.parametrize("shape", [(20000,), (140, 141), (26, 27, 28)])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_lossless_chunks_are_as_small_as_lossless_streams(shape, dtype):
    rng = np.random.default_rng(3)
    smooth = smooth_field(shape, "f8")
    for x in (
        whole_numbers(shape, dtype),
        (np.round(smooth * 100) / 100).astype(dtype),
        rng.normal(size=shape).astype(dtype),
        np.where(rng.random(shape) < 0.03, smooth, 0).astype(dtype),
    ):
        data = coded_and_back(x, 1e-12)[1]
        assert len(data) <= 1.02 * len(encode_array(x))
        assert data[5] == KINDS["lossless"]


def test_the_smaller_of_both_is_stored():
    """Quantised values cost more within a bound below their step than with all bits."""
    x = (np.round(smooth_field((40, 40, 40), "f8") * 30) / 30).astype("f4")
    y, data = coded_and_back(x, 1e-7)
    assert data[5] == KINDS["lossless"]
    assert y.tobytes() == x.tobytes()
    assert coded_and_back(x, 1e-2)[1][5] == KINDS["coded"]


@pytest.mark.parametrize("dtype", ["f4", ">f8"])
@pytest.mark.parametrize("fill", [0.0, -0.0])
@pytest.mark.parametrize("kind", ["coded", "rounded"])
def test_both_zeros_equal_a_fill_value_of_zero(dtype, fill, kind):
    """Readers compare values, not bits."""
    x = smooth_field((20, 30), "f8").astype(dtype)
    # Whole rows of the fill value look like rows that are not written yet.
    lines = x if kind == "rounded" else x.T
    lines[::3] = 0.0
    lines[::7] = -0.0
    lines[4] = 1e-5 * lines[4]
    y, data = coded_and_back(x, 1e-2, fill)
    assert data[5] == KINDS[kind]
    assert ((y == 0) == (x == 0)).all()
    assert y[x == 0].tobytes() == x[x == 0].tobytes()


def test_damaged_chunks_of_all_kinds_are_errors():
    chance = np.random.default_rng(0)
    for x in (np.full((30, 40), 7.0), whole_numbers((9, 10, 11), "f8")):
        parameters = library.chunk_parameters(x.shape, x.dtype, 1e-12)
        data = library.encode_chunk(x, parameters)
        for _ in range(200):
            damaged = bytearray(data)
            damaged[chance.integers(0, len(data))] ^= 1 << int(chance.integers(0, 8))
            with pytest.raises(DataError):
                library.decode_chunk(bytes(damaged), x.shape, x.dtype, parameters)


def test_methods_are_compared_where_the_field_is_not_empty():
    x = smooth_field((100, 100, 40), "float32") * 100
    usual = len(coded_and_back(x, 1e-2)[1])
    x[26:74, 26:74] = 0
    assert len(coded_and_back(x, 1e-2)[1]) <= usual


def test_what_cannot_be_coded_is_stored_as_it_is():
    noise = np.random.default_rng(0).integers(0, 1 << 32, 999, np.uint32).view("f4")
    for x in (np.full((9, 9), np.nan, "f4"), noise):
        parameters = library.chunk_parameters(x.shape, x.dtype, 1e-30)
        data = library.encode_chunk(x, parameters)
        assert len(data) <= x.nbytes + 20
        y = library.decode_chunk(data, x.shape, x.dtype, parameters)
        assert y.tobytes() == x.tobytes()


def test_parameters_that_make_no_sense_are_refused():
    for dtype, bound in (("i4", 1e-3), ("f4", -1.0), ("f4", float("nan")), ("f2", 1e-3)):
        with pytest.raises(ConfigError):
            library.chunk_parameters((4, 4), np.dtype(dtype), bound)


def test_damaged_chunks_are_errors():
    x = with_specials((12, 13, 14), "float32")
    parameters = library.chunk_parameters(x.shape, x.dtype, 1e-2, -999.0)
    data = library.encode_chunk(x, parameters)
    chance = np.random.default_rng(0)
    for _ in range(400):
        damaged = bytearray(data)
        for _ in range(chance.integers(1, 9)):
            damaged[chance.integers(0, len(data))] ^= 1 << int(chance.integers(0, 8))
        damaged = damaged[: chance.integers(0, len(data)) if chance.random() < 0.3 else None]
        if bytes(damaged) == data:
            continue
        with pytest.raises(DataError):
            library.decode_chunk(bytes(damaged), x.shape, x.dtype, parameters)
    other = library.chunk_parameters(x.shape, x.dtype, 2e-2, -999.0)
    with pytest.raises(DataError):  # the checksum of values notices another bound
        library.decode_chunk(data, x.shape, x.dtype, other)


def vector_names() -> list[str]:
    """Return the frozen chunks of both versions of the format, as FOLDER/NAME."""
    folders = ("codec_v1", "codec_v2")
    return sorted(f"{f}/{name}" for f in folders for name in vectors(f))


def vectors(folder: str) -> dict:
    return json.loads((GOLDEN / folder / "vectors.json").read_text())


@pytest.mark.parametrize("name", vector_names())
def test_frozen_vectors_decode_to_the_same_bits(name):
    about = vectors(name.partition("/")[0])[name.partition("/")[2]]
    data, shape, dtype = (
        (GOLDEN / f"{name}.bin").read_bytes(),
        tuple(about["shape"]),
        about["dtype"],
    )
    parameters = library.chunk_parameters(shape, np.dtype(dtype), about["bound"], about["fill"])
    values = library.decode_chunk(data, shape, np.dtype(dtype), parameters)
    assert hashlib.sha256(values.tobytes()).hexdigest() == about["sha256"]
    slow = slow_decoder.decode_chunk(data, shape, np.dtype(dtype), about["bound"], about["fill"])
    assert slow.tobytes() == values.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("level", ["-O0", "-O3"])
def test_other_compilers_and_levels_decode_to_the_same_bits(compiler, level, tmp_path):
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    code, built = tmp_path / "codec.c", tmp_path / "codec.so"
    code.write_text(plugin_source())
    flags = [f for f in FLAGS if not f.startswith(("-O", "-fvis"))]
    subprocess.run([compiler, level, *flags, code, "-o", built, "-lm", "-ldl"], check=True)
    decode = ctypes.CDLL(str(built)).sck_chunk_decode
    decode.restype = ctypes.c_int64
    for name in vector_names():
        about = vectors(name.partition("/")[0])[name.partition("/")[2]]
        data = np.frombuffer((GOLDEN / f"{name}.bin").read_bytes(), np.uint8)
        out = np.empty(about["shape"], about["dtype"])
        words = library.chunk_parameters(out.shape, out.dtype, about["bound"], about["fill"])
        assert (
            decode(
                ctypes.c_void_p(words.ctypes.data),
                ctypes.c_size_t(words.size),
                ctypes.c_void_p(data.ctypes.data),
                ctypes.c_int64(data.size),
                ctypes.c_void_p(out.ctypes.data),
                ctypes.c_int64(out.nbytes),
            )
            == 0
        )
        assert hashlib.sha256(out.tobytes()).hexdigest() == about["sha256"]


FUZZ = r"""
#include <stdio.h>
static uint32_t seed = 1;
static uint32_t chance(uint32_t n) { seed = seed * 1664525u + 1013904223u; return (seed >> 8) % n; }
int main(int argc, char **argv) {
    const long tries = atol(argv[1]);
    long silent = 0;
    const unsigned words[10] = {PARAMETERS, HAS_FILL, 0xd2f1a9fcu, 0x3f50624du, 0xc479c000u, 0, 3,
                                6, 7, 8};
    float x[336], y[336], z[336];
    for (int i = 0; i < 336; i++) x[i] = i % 29 ? (float)sin(i / 9.) + chance(9) / 99.f : -999.f;
    uint8_t good[1 << 16], bad[1 << 16];
    const int64_t size = sck_chunk_encode(words, 10, (uint8_t *)x, sizeof x, good, sizeof good);
    if (sck_chunk_decode(words, 10, good, size, (uint8_t *)y, sizeof y)) return 2;
    for (long t = 0; t < tries; t++) {
        int64_t n = size;
        memcpy(bad, good, (size_t)size);
        for (uint32_t k = 1 + chance(8); k > 0; k--)
            bad[(chance(2) ? CHUNK_HEAD : 0) + chance((uint32_t)size - CHUNK_HEAD)]
                ^= (uint8_t)(1 << chance(8));
        if (chance(4) == 0) n = chance((uint32_t)size + 1);
        const int changed = n != size || memcmp(bad, good, (size_t)size);
        /* With a right checksum of the frame: the decoder itself must refuse damaged contents. */
        if (n >= CHUNK_HEAD && chance(2)) {
            bad[5] = chance(2) ? bad[5] & 3 : chance(4);
            bad[4] = VERSION_OF[bad[5]];
            put_word(bad + 12, frame_crc(bad, n));
        }
        uint8_t *exact = malloc((size_t)n + 1);
        memcpy(exact, bad, (size_t)n);
        if (!sck_chunk_decode(words, 10, exact, n, (uint8_t *)z, sizeof z) && changed &&
            memcmp(y, z, sizeof y)) silent++;
        free(exact);
    }
    printf("%ld\n", silent);
    (void)argc;
    return 0;
}
"""


FUZZ_BLOCKS = r"""
#include <stdio.h>
static uint32_t seed = 1;
static uint32_t chance(uint32_t n) { seed = seed * 1664525u + 1013904223u; return (seed >> 8) % n; }
int main(int argc, char **argv) {
    const long tries = atol(argv[1]);
    const int64_t shape[3] = {6, 7, 9}, stride[2] = {63, 9};
    long silent = 0;
    float x[378], y[378], z[378];
    double error;
    for (int i = 0; i < 378; i++) x[i] = (float)sin(i / 9.) + chance(9) / 99.f;
    x[100] = 1e9f;
    uint8_t head[8192], good[1 << 16], bad[1 << 16];
    const int64_t common = sck_fit_blocks_32(shape, stride, x, 1e9, 1e-2, head, sizeof head);
    const int64_t bytes = sck_block_workspace_32(shape);
    uint8_t *const memory = malloc((size_t)bytes);
    const int64_t size = sck_encode_block_32(shape, stride, x, head, common, 1e-2, good,
                                             sizeof good, y, &error, memory, bytes);
    if (common < 0 || size < 0) return 2;
    for (long t = 0; t < tries; t++) {
        int64_t n = chance(4) ? size : chance((uint32_t)size + 1), m = common;
        uint8_t *h = malloc((size_t)m + 1), *b = malloc((size_t)n + 1);
        memcpy(bad, good, (size_t)size);
        memcpy(h, head, (size_t)m);
        for (uint32_t k = chance(8); k > 0; k--) bad[chance((uint32_t)size)] ^= 1 << chance(8);
        if (chance(3) == 0) h[chance((uint32_t)m)] ^= 1 << chance(8);
        memcpy(b, bad, (size_t)n);
        if (!sck_decode_block_32(shape, stride, h, m, 1e-2, b, n, z, memory, bytes)
            && memcmp(y, z, sizeof y)) silent++;
        free(h);
        free(b);
    }
    free(memory);
    printf("%ld\n", silent);
    (void)argc;
    return 0;
}
"""


@pytest.mark.slow
@pytest.mark.parametrize(("program", "tries"), [(FUZZ, 400_000), (FUZZ_BLOCKS, 200_000)])
def test_hostile_input_under_the_address_sanitizer(program, tries, tmp_path):
    """Chunks, half of them with a right checksum, and blocks: no invalid access, none silent."""
    require_sanitizer("gcc", "address")
    code, built = tmp_path / "fuzz.c", tmp_path / "fuzz"
    code.write_text(library.source() + program)
    command = ["gcc", "-O1", "-g", "-std=gnu11", "-ffp-contract=off", "-w"]
    command += ["-fsanitize=address", "-fno-omit-frame-pointer", code, "-o", built, "-lm"]
    subprocess.run(command, check=True)
    done = subprocess.run([built, str(tries)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) == 0


def decades(shape, dtype, seed=0):
    """Return values over many decades with both signs, zeros, subnormals and missing values."""
    field = smooth_field(shape, "f8") * 12 + np.random.default_rng(seed).normal(0, 0.05, shape)
    x = (np.exp(field) * np.sign(np.sin(3 * field))).astype(dtype)
    flat = x.reshape(-1)
    flat[::37], flat[1::41], flat[2::43] = 0.0, -999.0, 1e20
    flat[3::47], flat[4::53], flat[5::59] = np.nan, np.inf, np.finfo(dtype).tiny / 4
    return x


@pytest.mark.parametrize("shape", [(300,), (14, 19), (2, 3, 9, 8), (70, 1, 9)])
@pytest.mark.parametrize(
    ("dtype", "bound"), [("<f4", 1e-2), (">f4", 1e-5), ("<f8", 0.3), (">f8", 1e-2)]
)
def test_relative_bounds_hold_at_every_value_and_several_missing_values_are_exact(
    shape, dtype, bound
):
    x = decades(shape, dtype)
    extras = library.ChunkExtras(True, (1e20, -7.5))
    parameters = library.chunk_parameters(x.shape, x.dtype, bound, -999.0, extras)
    data = library.encode_chunk(x, parameters)
    y = library.decode_chunk(data, x.shape, x.dtype, parameters)
    fills = np.array([-999.0, 1e20], dtype)
    exact = ~np.isfinite(x) | (x == 0) | np.isin(x, fills)
    assert y[exact].tobytes() == x[exact].tobytes()
    wide, original = y[~exact].astype("f8"), x[~exact].astype("f8")
    assert (np.abs(wide - original) <= bound * np.abs(original)).all()
    assert data[5] in (4, 3)
    if data[5] == 4:
        slow = slow_decoder.decode_chunk(data, shape, x.dtype, bound, -999.0)
        assert slow.tobytes() == y.tobytes()


def test_relative_chunks_of_one_sign_and_bounds_below_the_precision():
    for sign, dtype in ((1, "f4"), (-1, "f8")):
        x = (sign * np.exp(8 * smooth_field((20, 21, 22), "f8"))).astype(dtype)
        for bound in (1e-3, 1e-9, 1e-17):
            extras = library.ChunkExtras(relative=True)
            parameters = library.chunk_parameters(x.shape, x.dtype, bound, None, extras)
            data = library.encode_chunk(x, parameters)
            y = library.decode_chunk(data, x.shape, x.dtype, parameters).astype("f8")
            assert (np.abs(y - x) <= bound * np.abs(x.astype("f8"))).all()
            assert (data[5] == 4) == (bound > 1e-7 if dtype == "f4" else bound > 1e-15)
    for bound in (1.0, 2.0, float("nan")):
        with pytest.raises(ConfigError):
            library.chunk_parameters((9,), np.dtype("f4"), bound, None, extras)


def enhancers(values, bound):
    """Return a fitted linear enhancer and a network with arbitrary weights."""
    inner = bound / 1.5 * (1 - 1e-6)
    decoded = library.encode(values, inner, thorough=False)[1]
    rng = np.random.default_rng(0)
    network = GroupWeights(
        np.float32([0.0]),
        rng.integers(-9, 9, (2, 5, 32)).astype("i1"),
        rng.integers(-9, 9, (2, 5)).astype("i1"),
        rng.integers(-9, 9, (2, 5)).astype("i1"),
        np.float32([2e-3, 2e-3, 2e-3]),
    )
    return decoded, {
        "linear": Linear().fit(values, decoded, bound, 4, 0.0),
        "network": network.to_bytes(),
    }


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8"])
@pytest.mark.parametrize("shape", [(40, 44), (14, 12, 18), (2, 9, 10, 11)])
def test_enhanced_chunks_keep_the_bound_and_decode_as_the_page_says(dtype, shape):
    rng, bound = np.random.default_rng(2), 0.05
    x = (smooth_field(shape, "f8") + rng.normal(0, 0.02, shape)).astype(dtype)
    native = np.ascontiguousarray(x.astype(x.dtype.newbyteorder("=")))
    decoded, fitted = enhancers(native, bound)
    kinds = set()
    for name, data in fitted.items():
        extras = library.ChunkExtras(enhancer=(name, data))
        assert library.ChunkExtras.of(extras.settings()) == extras
        parameters = library.chunk_parameters(x.shape, x.dtype, bound, None, extras)
        assert library.enhancer_in(parameters.tolist()) == (name, data)
        coded = library.encode_chunk(x, parameters)
        y = library.decode_chunk(coded, x.shape, x.dtype, parameters)
        assert np.abs(y.astype("f8") - x).max() <= bound
        kinds.add((name, coded[5]))
        if coded[5] == 5 and name == "linear":
            slow = slow_decoder.decode_chunk(coded, shape, x.dtype, bound, None, data)
            assert slow.tobytes() == y.tobytes()
            assert np.mean((y.astype("f8") - x) ** 2) < np.mean((decoded - native) ** 2.0)
        # Another enhancer is not the one that the chunk names; without one it cannot be decoded.
        for other in (None, ("linear", fitted["linear"][:4] + b"\0" * 99)):
            wrong = library.ChunkExtras(fills=(1.0,), enhancer=other)
            words = library.chunk_parameters(x.shape, x.dtype, bound, None, wrong)
            if coded[5] == 5:
                with pytest.raises(DataError):
                    library.decode_chunk(coded, x.shape, x.dtype, words)
    assert ("linear", 5) in kinds


def swapped_limits(name: str, data: bytes) -> bytes:
    """Return the bytes of an enhancer whose first two limits fall."""
    at = {"linear": 4, "network": 14}[name]
    return data[:at] + data[at + 4 : at + 8] + data[at : at + 4] + data[at + 8 :]


def networks_of_three_groups() -> GroupWeights:
    rng = np.random.default_rng(1)
    shapes = ((3, 2, 32), (3, 2), (3, 2))
    weights = [rng.integers(-9, 9, shape).astype("i1") for shape in shapes]
    return GroupWeights(np.float32([-0.5, 0.5]), *weights, np.float32([2e-3] * 3))


@pytest.mark.parametrize("dtype", ["<f4", ">f8"])
@pytest.mark.parametrize("name", ["linear", "network"])
def test_limits_of_an_enhancer_that_do_not_rise_are_refused(name, dtype):
    rng, bound = np.random.default_rng(2), 0.05
    x = (smooth_field((14, 12, 18), "f8") + rng.normal(0, 0.02, (14, 12, 18))).astype(dtype)
    native = np.ascontiguousarray(x.astype(x.dtype.newbyteorder("=")))
    decoded, fitted = enhancers(native, bound)
    data = fitted[name] if name == "linear" else networks_of_three_groups().to_bytes()
    at = {"linear": 4, "network": 14}[name]
    nan = data[:at] + np.float32(np.nan).tobytes() + data[at + 4 :]
    right = library.chunk_parameters(
        x.shape, x.dtype, bound, None, library.ChunkExtras(enhancer=(name, data))
    )
    coded = bytearray(library.encode_chunk(x, right))
    for wrong in (swapped_limits(name, data), nan):
        extras = library.ChunkExtras(enhancer=(name, wrong))
        words = library.chunk_parameters(x.shape, x.dtype, bound, None, extras)
        # A chunk that names this enhancer, with right checksums.
        item = words[7 + x.ndim + 1 :].astype("<u4").tobytes()
        crafted = coded[:20] + zlib.crc32(item).to_bytes(4, "little") + coded[24:]
        crafted[5] = 5
        crafted[4] = 3
        crafted[12:16] = zlib.crc32(crafted[16:], zlib.crc32(crafted[:12])).to_bytes(4, "little")
        with pytest.raises(DataError):
            library.decode_chunk(bytes(crafted), x.shape, x.dtype, words)
        with pytest.raises(DataError):
            library.encode_chunk(x, words)
        for read in (
            lambda: library.enhancer_in(words.tolist()),  # noqa: B023
            lambda: library.ChunkExtras.of(extras.settings()),  # noqa: B023
            lambda: {"linear": Linear(), "network": Network()}[name].apply(
                wrong,  # noqa: B023
                decoded,
                bound,
                bound / 3,
            ),
        ):
            with pytest.raises(DataError, match=r"limits of the enhancer .* do not rise.*Fix"):
                read()


def test_a_file_whose_enhancer_has_falling_limits_is_refused_by_name(tmp_path):
    import h5py

    from scitoolkit.compression import Bound, Options
    from scitoolkit.compression.files import FilePlan, compress_file, decompress_file
    from scitoolkit.io.compressed import FILTERED

    rng = np.random.default_rng(2)
    values = smooth_field((20, 24, 25), "f4") + rng.normal(0, 0.02, (20, 24, 25)).astype("f4")
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["x"] = values
    options = Options(enhancer="linear", objective="quality")
    plan = FilePlan(Bound("abs", 0.05), {}, options, container="filter")
    compress_file(tmp_path / "in.h5", tmp_path / "small.h5", plan)
    # Headers of the earliest format have no checksum.
    old = tmp_path / "old.h5"
    with h5py.File(tmp_path / "small.h5") as file, h5py.File(old, "w", libver="earliest") as target:
        named = library.enhancer_in(parameters_of(file["x"]))
        options = filter_options(0.05, library.ChunkExtras(enhancer=named), values.dtype)
        made = target.create_dataset("x", data=values, chunks=values.shape, **options)
        made.attrs[FILTERED] = file["x"].attrs[FILTERED]
    decompress_file(old, tmp_path / "out.h5")
    whole = old.read_bytes()
    assert whole.count(named[1]) == 1
    old.write_bytes(whole.replace(named[1], swapped_limits(*named)))
    with pytest.raises(DataError, match=r"old\.h5.*do not rise"):
        decompress_file(old, tmp_path / "again.h5")
    with h5py.File(old) as file, pytest.raises(OSError, match="read"):
        file["x"][...]


def test_damaged_chunks_and_parameters_of_version_3_raise():
    x = decades((9, 10, 11), "f4")
    extras = library.ChunkExtras(True, (1e20,))
    parameters = library.chunk_parameters(x.shape, x.dtype, 1e-2, -999.0, extras)
    data = library.encode_chunk(x, parameters)
    rng = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(data)
        damaged[rng.integers(20, len(data))] ^= 1 << rng.integers(8)
        checked = zlib.crc32(damaged[16:], zlib.crc32(damaged[:12]))
        damaged[12:16] = checked.to_bytes(4, "little")  # a right checksum over wrong bytes
        with pytest.raises((DataError, MemoryError)):
            library.decode_chunk(bytes(damaged), x.shape, x.dtype, parameters)
    for change in (np.append(parameters, 7 << 24), np.append(parameters, 3 << 24 | 9)):
        with pytest.raises(DataError):
            library.decode_chunk(data, x.shape, x.dtype, change.astype(np.uint32))


def test_four_dims_are_cut_where_neighbours_differ_most():
    """A chunk is coded along three dims; unrelated variables or coarse steps are not joined."""
    from scitoolkit.compression import Bound
    from scitoolkit.compression.chunked import best_chunk_shape, chunk_shape, survey
    from scitoolkit.compression.missing import MissingValues

    t, z, y, x = np.meshgrid(*[np.linspace(0, 3, n) for n in (8, 10, 18, 20)], indexing="ij")
    smooth = np.sin(x - t) * np.cos(y + z / 2 + t / 3)
    scale = np.array([1, -7, 3, 20, -2, 9, 5, -4.0])
    for values, expected in (
        (smooth * scale[:, None, None, None], (1, 10, 18, 20)),
        (smooth * np.append(scale, [2, -9])[:, None, None], (8, 1, 18, 20)),
    ):
        item = values.astype("f4")
        found = survey(item, Bound("rel", 1e-3), MissingValues(), "x")
        assert best_chunk_shape(item, found) == expected
    line = np.ones((3, 1, 1, 5), "f4")
    assert best_chunk_shape(line, found) == line.shape
    five = np.broadcast_to(item, (2, *item.shape))
    assert sum(n > 1 for n in best_chunk_shape(np.ascontiguousarray(five), found)) <= 4
    assert chunk_shape((5, 400, 300, 200), (0,)) == (1, *chunk_shape((400, 300, 200)))


@pytest.mark.parametrize("enhancer", ["linear", "network"])
def test_enhancers_are_behind_the_filter_if_quality_and_filter_are_named(enhancer):
    from scitoolkit.compression import Bound, Options
    from scitoolkit.compression.files import FilePlan

    bound, quality = Bound("rel", 1e-2), Options(enhancer=enhancer, objective="quality")
    assert FilePlan(bound, {}, quality, container="filter").in_chunks("x")
    assert not FilePlan(bound, {}, quality).in_chunks("x")
    with pytest.raises(ConfigError, match="for size"):
        FilePlan(bound, {}, Options(enhancer=enhancer), container="filter")
    sz3 = quality.model_copy(update={"codec": Options(codec="sz3").codec})
    with pytest.raises(ConfigError, match="codec=sz3"):
        FilePlan(bound, {}, sz3, container="filter")

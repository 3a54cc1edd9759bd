"""Contract suites of codecs and enhancers, to inherit in tests.

Example:
    class TestMyCodec(CodecContract):
        @pytest.fixture
        def codec(self):
            return MyCodec()
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest

from scitoolkit.compression import compress, decompress, inspect_stream
from scitoolkit.compression.codecs import ErrorBoundedCodec, codecs
from scitoolkit.compression.enhancers import Enhancer, enhancers
from scitoolkit.core.errors import DataError
from scitoolkit.testing.member import check_registered

SHAPES = ((700,), (31, 33), (12, 14, 13), (3, 4, 12, 11))
BOUNDS = (1e-1, 1e-4)


def smooth_field(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Return waves along each dim with little noise, of magnitude 1.

    Example:
        >>> smooth_field((3, 4)).shape
        (3, 4)
    """
    rng = np.random.default_rng(seed)
    field = 0.02 * rng.standard_normal(shape)
    for axis, n in enumerate(shape):
        wave = np.sin(np.linspace(0, 4 + axis, n) + axis)
        field += wave.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return field.astype(dtype)


def unusual_fields() -> Iterator[tuple[str, np.ndarray]]:
    """Yield finite fields that are hard to code: steps, spikes, offsets, extreme magnitudes."""
    field = smooth_field((12, 14, 13))
    yield "noise", np.random.default_rng(1).standard_normal(field.shape).astype("float32")
    yield "step", np.where(field > 0.3, np.float32(5), np.float32(-5))
    spikes = np.zeros_like(field)
    spikes[3, 4, 5], spikes[9, 1, 2] = 1e4, -1e4
    yield "spikes", spikes
    yield "offset", field + np.float32(1e4)
    yield "tiny", field * np.float32(1e-20)
    yield "huge", field * np.float32(1e20)
    yield "negative zero", np.where(field > 0, field, np.float32(-0.0))


def largest_error(x: np.ndarray, y: np.ndarray) -> float:
    """Return the largest |x - y| in float64, infinite where y is not finite."""
    error = np.abs(x.astype(np.float64) - y.astype(np.float64))
    return float(np.nan_to_num(error, nan=np.inf).max(initial=0.0))


class CodecContract:
    """Contract suite of error-bounded codecs; override the fixture `codec`."""

    @pytest.fixture
    def codec(self) -> ErrorBoundedCodec:
        """Return the codec under test, with its settings."""
        raise NotImplementedError("override the fixture `codec`")

    def accepted(self, codec: ErrorBoundedCodec) -> Iterator[tuple[np.ndarray, float]]:
        """Yield fields and absolute bounds that the codec supports."""
        for shape in SHAPES:
            for dtype in codec.dtypes:
                for bound in BOUNDS:
                    values = smooth_field(shape, dtype)
                    if not codec.refusal(values, bound):
                        yield values, bound

    def test_registered_under_its_name(self, codec: ErrorBoundedCodec) -> None:
        """The registry returns this class, which has a summary and is available."""
        check_registered(codecs, codec)
        assert type(codec)().name == codec.name

    def test_some_usual_field_is_accepted(self, codec: ErrorBoundedCodec) -> None:
        """At least one shape of each dtype is supported."""
        dtypes = {values.dtype.name for values, _ in self.accepted(codec)}
        assert dtypes == set(codec.dtypes)

    def test_bound_holds_at_every_point(self, codec: ErrorBoundedCodec) -> None:
        """A pointwise codec keeps the bound up to rounding; dtype and shape are restored."""
        for values, bound in self.accepted(codec):
            decoded = codec.decode(codec.encode(values, bound), values.shape, values.dtype, bound)
            assert (decoded.dtype, decoded.shape) == (values.dtype, values.shape)
            if codec.pointwise:
                # A codec computes in real numbers; the value that it returns is rounded to the
                # dtype.
                rounding = float(np.spacing(np.abs(values).max()))
                assert largest_error(values, decoded) <= bound + rounding

    def test_encoding_is_deterministic_and_leaves_the_input(self, codec: ErrorBoundedCodec) -> None:
        """Two encodings give equal bytes and do not modify the values."""
        for values, bound in self.accepted(codec):
            before = values.tobytes()
            assert codec.encode(values, bound) == codec.encode(values, bound)
            assert values.tobytes() == before

    def test_default_settings_decode(self, codec: ErrorBoundedCodec) -> None:
        """An instance with default settings decodes fields encoded with any settings."""
        for values, bound in self.accepted(codec):
            data = codec.encode(values, bound)
            decoded = [
                c.decode(data, values.shape, values.dtype, bound) for c in (codec, type(codec)())
            ]
            assert decoded[0].tobytes() == decoded[1].tobytes()

    def test_factors_and_header(self, codec: ErrorBoundedCodec) -> None:
        """Factors are positive; the header survives JSON and reproduces the field of `code`."""
        for values, bound in self.accepted(codec):
            factors = codec.factors(values.size)
            assert factors
            assert all(0 < f < 4 for f in factors)
            coded = codec.code(values, bound, factors[-1])
            header = json.loads(json.dumps(coded.header))
            data = memoryview(coded.data)
            restored = type(codec)().restore(header, data, values.shape, values.dtype, bound)
            assert restored.tobytes() == coded.decoded.tobytes()

    @pytest.mark.parametrize("enhancer", ["none", "auto"])
    def test_streams_keep_the_bound(self, codec: ErrorBoundedCodec, enhancer: str) -> None:
        """`compress` with this codec keeps the bound exactly and records the codec's name."""
        for values, bound in self.accepted(codec):
            stream = compress(values, abs=bound, codec=codec, enhancer=enhancer)
            about = inspect_stream(stream)
            assert largest_error(values, decompress(stream)) <= bound
            assert about["base"]["name"] in (codec.name, "lossless")

    def test_unusual_fields_keep_the_bound(self, codec: ErrorBoundedCodec) -> None:
        """Steps, spikes, offsets and extreme magnitudes are coded within the bound, or refused."""
        for name, values in unusual_fields():
            bound = 1e-3 * float(np.ptp(values.astype(np.float64)))
            if codec.refusal(values, bound):
                continue
            stream = compress(values, abs=bound, codec=codec, enhancer="none")
            assert largest_error(values, decompress(stream)) <= bound, name

    def test_special_values_are_restored_bit_for_bit(self, codec: ErrorBoundedCodec) -> None:
        """NaN, Inf and fill values are stored separately and restored exactly."""
        values, bound = max(self.accepted(codec), key=lambda case: case[1])
        flat = values.reshape(-1)
        flat[[0, 5, 77]] = np.nan, np.inf, -np.inf
        flat[100:120] = -999.0
        decoded = decompress(compress(values, abs=bound, codec=codec, missing=-999.0))
        special = ~np.isfinite(values) | (values == -999.0)
        assert decoded[special].tobytes() == values[special].tobytes()
        assert largest_error(values[~special], decoded[~special]) <= bound

    @pytest.mark.parametrize("shape", [(0,), (3, 0, 4), (), (1,)])
    def test_empty_and_constant_fields(self, codec: ErrorBoundedCodec, shape: tuple) -> None:
        """Empty, single-value and constant arrays are restored."""
        for dtype in codec.dtypes:
            empty = np.full(shape, 2.5, dtype)
            assert np.array_equal(decompress(compress(empty, abs=0.1, codec=codec)), empty)
            constant = np.full((12, 14, 13), 2.5, dtype)
            decoded = decompress(compress(constant, abs=0.1, codec=codec))
            assert largest_error(constant, decoded) <= 0.1

    def test_damaged_streams_are_refused(self, codec: ErrorBoundedCodec) -> None:
        """A flipped bit or missing bytes raise DataError; no values are returned."""
        values, bound = next(iter(self.accepted(codec)))
        stream = compress(values, abs=bound, codec=codec, enhancer="none")
        places = np.linspace(0, len(stream) - 1, 24).astype(int)
        for place in places:
            damaged = bytearray(stream)
            damaged[place] ^= 0x10
            with pytest.raises(DataError):
                decompress(bytes(damaged))
            with pytest.raises(DataError):
                decompress(stream[:place])


class EnhancerContract:
    """Contract suite of enhancers; override the fixture `enhancer`."""

    @pytest.fixture
    def enhancer(self) -> Enhancer:
        """Return the enhancer under test, with its settings."""
        raise NotImplementedError("override the fixture `enhancer`")

    def fitted(
        self, enhancer: Enhancer, dtype: str
    ) -> Iterator[tuple[np.ndarray, np.ndarray, float, bytes]]:
        """Yield a field, its coarsely quantised version, the bound and a fitted enhancer."""
        bound = 0.2
        for shape in SHAPES[:3]:
            values = smooth_field(shape, dtype)
            decoded = (np.rint(values / (2 * bound)) * 2 * bound).astype(dtype)
            for size in enhancer.sizes(values.size):
                data = enhancer.fit(values, decoded, bound, size, 0.05)
                if data is not None:
                    yield values, decoded, bound, data

    def test_registered_under_its_name(self, enhancer: Enhancer) -> None:
        """The registry returns this class, which has a summary and is available."""
        check_registered(enhancers, enhancer)

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_clip_holds_and_the_error_falls(self, enhancer: Enhancer, dtype: str) -> None:
        """No point changes by more than the clip; the summed mean square error decreases."""
        before = after = 0.0
        for values, decoded, bound, data in self.fitted(enhancer, dtype):
            first_bytes = decoded.tobytes()
            enhanced = enhancer.apply(data, decoded, bound, bound)
            assert (enhanced.dtype, enhanced.shape) == (values.dtype, values.shape)
            assert decoded.tobytes() == first_bytes
            half = enhancer.apply(data, decoded, bound, 0.5 * bound)
            assert largest_error(half, decoded) <= 0.5 * bound * (1 + 1e-5)
            before += float(np.square(values - decoded).mean())
            after += float(np.square(values - enhanced).mean())
        assert 0 < after < before

    def test_apply_is_deterministic_without_settings(self, enhancer: Enhancer) -> None:
        """The result of `apply` depends on the bytes alone."""
        for _, decoded, bound, data in self.fitted(enhancer, "float32"):
            corrected = [e.apply(data, decoded, bound, bound) for e in (enhancer, type(enhancer)())]
            assert corrected[0].tobytes() == corrected[1].tobytes()

    def test_truncated_bytes_are_refused(self, enhancer: Enhancer) -> None:
        """Bytes of another length raise DataError."""
        _, decoded, bound, data = next(self.fitted(enhancer, "float32"))
        for damaged in (b"", data[:1], data[:-1], data + b"\0"):
            with pytest.raises(DataError):
                enhancer.apply(damaged, decoded, bound, bound)

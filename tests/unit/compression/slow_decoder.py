"""A second decoder of the interpolation payload, slow and plain, made from docs/format alone.

Its tables are read from the page, so that a page which says other numbers than the C library fails.
"""

from __future__ import annotations

import itertools
import math
import re
import struct
import zlib
from pathlib import Path

import numpy as np

PAGE = Path(__file__).parents[3] / "docs" / "format" / "interpolation.md"
ORDER = (0, 1, 2, 4, 3, 5, 6, 7)
PAIRS = ((1.0, 1.0), (1.25, 2.0), (1.5, 3.0), (2.0, 4.0))
ESCAPE, FITTED_POINTS, FEW_POINTS = 1 << 29, 2000, 200
DEFAULT_FILL = 9.969209968386869e36


def table(name: str) -> list[int]:
    """Return a table of constants from the page."""
    found = re.search(rf"```text\n{name} =\n([\d\s]*)```", PAGE.read_text(encoding="utf-8"))
    assert found
    return [int(v) for v in found[1].split()]


KNOTS, RATE, BINS = table("KNOTS"), table("RATE"), table("BINS")


def make_tables() -> tuple[list[int], list[int]]:
    squash = []
    for i in range(6144):
        k, f = divmod(i, 32)
        squash.append((KNOTS[k] * (32 - f) + KNOTS[k + 1] * f + 16) // 32)
    squash.append(KNOTS[-1])
    stretch, j = [], -2047
    for v in range(4096):
        while j <= 2047 and squash[j + 3072] >> 4 < v:
            j += 1
        stretch.append(min(j, 2047))
    return squash, stretch


SQUASH, STRETCH = make_tables()


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def word(self, size: int = 1) -> int:
        taken = self.data[self.at : self.at + size]
        assert len(taken) == size
        self.at += size
        return int.from_bytes(taken, "little")

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.word()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value


class Coder:
    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.low, self.high, self.x = data, 0, 0, 0xFFFFFFFF, 0
        for _ in range(4):
            self.x = self.x << 8 | self.next()

    def next(self) -> int:
        self.at += 1
        return self.data[self.at - 1] if self.at <= len(self.data) else 0

    def bit(self, p: int) -> int:
        mid = self.low + ((self.high - self.low) * p >> 16)
        bit = int(self.x <= mid)
        self.low, self.high = (self.low, mid) if bit else (mid + 1, self.high)
        while self.low >> 24 == self.high >> 24:
            self.low = self.low << 8 & 0xFFFFFFFF
            self.high = (self.high << 8 & 0xFFFFFFFF) | 255
            self.x = (self.x << 8 & 0xFFFFFFFF) | self.next()
        return bit


class Model:
    def __init__(self, coder: Coder) -> None:
        self.coder = coder
        self.counters = [{} for _ in range(6)]
        self.weights: dict[int, list[int]] = {}

    def bit(self, contexts: list[int], which: int, limit: int) -> int:
        w = self.weights.setdefault(which, [18000] * 6 + [0])
        counters = [t.get(i, 1 << 31) for t, i in zip(self.counters, contexts, strict=True)]
        t = [STRETCH[c >> 20] for c in counters] + [256]
        dot = sum(a * b for a, b in zip(w, t, strict=True)) >> 16
        p = SQUASH[min(max(dot, -3072), 3072) + 3072]
        bit = self.coder.bit(p)
        error = ((bit << 16) - p) >> 4
        for i in range(7):
            w[i] += (t[i] * error * 6 + 8192) >> 14
        for of, i, c in zip(self.counters, contexts, counters, strict=True):
            n, v = c & 1023, c >> 10
            rate = RATE[n] if n < 32 else 65536 // (n + 2)
            v += ((4194303 if bit else 0) - v) * rate >> 16
            of[i] = v << 10 | (n + 1 if n < limit else n)
        return bit


def bin16(v: int) -> int:
    if v < 64:
        return BINS[v]
    return 12 if v < 96 else 13 if v < 160 else 14 if v < 320 else 15


def lg(v: int) -> int:
    e = (v + 1).bit_length() - 1
    return min(2 * e + ((v + 1) >> (e - 1) & 1 if e else 0), 31)


class Integers:
    def __init__(self, data: bytes) -> None:
        self.coder = Coder(data)
        self.models = [Model(self.coder) for _ in range(3)]

    def integer(self, contexts: list[int], near: int, total: int, which: int) -> int:
        if not self.models[0].bit(contexts, which, 1000):
            return 0
        minus = self.coder.bit(32768)
        size = 1
        if self.models[1].bit(contexts, 28 + which, 500):
            size = 2 + self.rest(near, total, which)
        return -size if minus else size

    def rest(self, near: int, total: int, which: int) -> int:
        model, a, b, e = self.models[2], lg(total), lg(near), 0
        while e < 29:
            j = min(e, 15)
            contexts = [
                32 * j + a,
                32 * j + b,
                j,
                32 * j + which,
                (16 * j + min(a // 2, 15)) * 16 + min(b // 2, 15),
                32 * j + lg(total - near),
            ]
            if not model.bit(contexts, 56 + which, 255):
                break
            e += 1
        u = 1
        for i in range(e - 1, -1, -1):
            if e - 1 - i < 3:
                j = 1 + 8 * min(e, 15) + u % 8
                h = 512 + 33 * j
                bit = model.bit([h + a, h + b, 16 + j, h + which, 4096 + j, h], 56 + which, 500)
            else:
                bit = self.coder.bit(32768)
            u = 2 * u + bit
        return u - 1


def scan(n: tuple[int, ...]):
    """Yield (level s, its exponent, class, its points) in the order of coding."""
    top = 1
    while any(2 * top < m for m in n):
        top *= 2
    s = top
    while s:
        for c in ORDER if s == top else ORDER[1:]:
            starts = [s if c & (4 >> d) else 0 for d in range(3)]
            axes = [range(start, m, 2 * s) for start, m in zip(starts, n, strict=True)]
            points = list(itertools.product(*axes))
            if points:
                yield s, s.bit_length() - 1, c, points
        s //= 2


def level_integers(data: bytes, n: tuple[int, ...], mask: np.ndarray | None) -> dict:
    out, source, q = {}, Integers(data), {}
    for s, level, c, points in scan(n):
        S, g = 2 * s, min(level, 3)

        def m(p, *offset):
            return q.get((p[0] + offset[0], p[1] + offset[1], p[2] + offset[2]), 0)

        around = [o for o in itertools.product((-s, 0, s), repeat=3) if o.count(0) in (1, 2)]
        for p in points:
            if mask is not None and mask[p]:
                out[p] = 0
                continue
            W, N, U = m(p, 0, 0, -S), m(p, 0, -S, 0), m(p, -S, 0, 0)
            A = sum(m(p, 0, -S, k) + m(p, -S, 0, k) + m(p, -S, k, 0) for k in (-S, S))
            D = m(p, 0, 0, -2 * S) + m(p, 0, -2 * S, 0) + m(p, -2 * S, 0, 0)
            B = sum(m(p, *o) * o.count(0) for o in around)
            corner = [v // (2 * S) * 2 * S for v in p]
            P = q.get(tuple(v + S * bool(c & (4 >> d)) for d, v in enumerate(corner)), 0)
            near = 2 * (W + N + U) + A
            total, band, which = near + B + D, 8 * g + c, 4 * max(c - 1, 0) + g
            contexts = [
                (16 * band + bin16(near)) * 4 + min(P, 3),
                (16 * band + bin16(B)) * 4 + min(P, 3),
                (16 * (g > 0) + bin16(near + D)) * 64 + 4 * bin16(B) + bin16(P) // 2 % 4,
                c + 8 * (min(W, 3) + 4 * min(N, 3) + 16 * min(U, 3) + 64 * min(A, 2)),
                (16 * band + bin16((near + B + 2 * P) // 2)) * 4 + min(D, 3),
                (16 * band + bin16(near + B + 2 * D + 2 * P)) * 16 + bin16(P),
            ]
            out[p] = source.integer(contexts, near, total, which)
            q[p] = min(abs(out[p]), 65535)
    return out


def line_integers(data: bytes, count: int, mask: np.ndarray | None) -> list[int]:
    source, out, mags = Integers(data), [], [0, 0, 0, 0]
    for i in range(count):
        if mask is not None and mask[i]:
            out.append(0)
            mags.append(0)
            continue
        a, b, c, d = mags[:-5:-1]
        near, total = 2 * a + b, 2 * (a + b) + c + d
        contexts = [
            lg(a),
            lg(a + b),
            0,
            16 * min(a, 15) + min(b, 15),
            lg(total),
            32 * lg(a) + lg(b),
        ]
        out.append(source.integer(contexts, near, total, 0))
        mags.append(min(abs(out[-1]), 65535))
    return out


def groups_of(c: int, n: tuple[int, ...]) -> list[list[tuple[int, int, int]]]:
    odd = [d for d in range(3) if c & (4 >> d)]
    even = [d for d in range(3) if d not in odd and n[d] > 1]
    lists = [((d, k),) for d in odd for k in (1, 3)]
    lists += [((a, 1), (b, 1)) for a, b in itertools.combinations(odd, 2)]
    lists += [((0, 1), (1, 1), (2, 1))] if len(odd) == 3 else []
    lists += [((d, 1), (a, k)) for d in odd for a in even for k in (1, 2)]
    lists += [((d, 2),) for d in range(3) if n[d] > 1]
    groups = []
    for steps in lists:
        offsets = []
        for signs in itertools.product((-1, 1), repeat=len(steps)):
            o = [0, 0, 0]
            for (axis, step), sign in zip(steps, signs, strict=True):
                o[axis] = sign * step
            other = c
            for d in range(3):
                other ^= (4 >> d) if o[d] % 2 else 0
            first = next(v for v in o if v)
            if ORDER.index(other) < ORDER.index(c) if other != c else first < 0:
                offsets.append(tuple(o))
        if offsets:
            groups.append(offsets)
    return groups


def read_weights(reader: Reader, n: tuple[int, ...], fit_from: int) -> dict:
    weights = {}
    for s, _, c, points in scan(n):
        if c == 0:
            continue
        groups = groups_of(c, n)
        fitted = len(points) >= fit_from and reader.word()
        weights[s, c] = weights_of(reader, groups) if fitted else cubic(c, groups)
    return weights


def cubic(c: int, groups: list) -> list[int]:
    h = bin(c).count("1")
    return [-((32 + h // 2) // h) if h and 3 in map(abs, g[0]) else 0 for g in groups]


def weights_of(reader: Reader, groups: list) -> list[int]:
    coded = [reader.varint() for _ in groups]
    return [v // 2 if v % 2 == 0 else -(v + 1) // 2 for v in coded]


def three(shape: tuple[int, ...]) -> tuple[int, ...]:
    n = tuple(v for v in shape if v != 1)
    return (math.prod(n[: len(n) - 2]), *n[-2:]) if len(n) > 3 else (1,) * (3 - len(n)) + n


def decode(
    data: bytes,
    shape: tuple[int, ...],
    dtype: np.dtype,
    bound: float,
    mask: np.ndarray | None = None,
) -> np.ndarray:
    """Return the field that a payload holds."""
    n, reader, real = three(shape), Reader(data), np.dtype(dtype).type
    method, margin = reader.word(), reader.word()
    b = bound * ((1048574 - 256 * margin) / 1048576)
    if mask is not None:
        mask = mask.reshape(n)
    weights, offset = {}, np.float32(0)
    variant, method = (method // 4 - 1, method % 4) if method >= 8 else (0, method)
    if method < 4:
        weights = read_weights(reader, n, FEW_POINTS if variant else FITTED_POINTS)
    else:
        offset = np.frombuffer(reader.word(4).to_bytes(4, "little"), "<f4")[0]
    size = np.dtype(dtype).itemsize
    words = [reader.word(size).to_bytes(size, "little") for _ in range(reader.varint())]
    verbatim = iter(np.frombuffer(b"".join(words), np.dtype(dtype).newbyteorder("<")))
    rest = data[reader.at :]
    if method >= 4:
        flat = None if mask is None else mask.reshape(-1)
        count = math.prod(n)
        line = line_integers(rest, count, flat)
        return decode_line(line, method - 4, float(offset), 2 * b, real, verbatim).reshape(shape)
    q = level_integers(rest, n, mask)
    return decode_levels(
        q, n, np.dtype(dtype), method, b, n, weights, verbatim, mask, variant == 2
    ).reshape(shape)


def decode_levels(q, n, dtype, pair, b, thick, weights, verbatim, mask, whole=False) -> np.ndarray:
    """Return the values that integers stand for; `thick` says which axes groups are made along."""
    v, real = np.zeros(n, dtype), dtype.type
    alpha, beta = PAIRS[pair]
    for s, level, c, points in scan(n):
        step = 2 * (b / min(alpha**level, beta))
        groups = groups_of(c, thick)
        for p in points:
            if abs(q[p]) == ESCAPE:
                v[p] = next(verbatim)
                continue
            guess = predict(v, n, p, s, c, groups, weights[s, c], real, whole) if c else real(0)
            masked = mask is not None and mask[p]
            v[p] = guess if masked else real(float(guess) + float(q[p]) * step)
    return v


def predict(v, n, p, s, c, groups, weights, real, whole):
    def share(w, k):
        return real(w / (256 * k))

    def at(off):
        return tuple(a + s * o for a, o in zip(p, off, strict=True))

    def inside(off):
        return all(0 <= i < m for i, m in zip(at(off), n, strict=True))

    odd = [d for d in range(3) if c & (4 >> d)]
    units = {d: tuple(int(i == d) for i in range(3)) for d in odd}
    between = [d for d in odd if inside(units[d])] if whole else []
    sums, rest = [], 256
    for group, w in zip(groups, weights, strict=True):
        offsets = [off for off in group if inside(off)]
        if w == 0 or not offsets:
            continue
        if between and len(offsets) < len(group):
            unit = tuple(o // 3 for o in offsets[0])
            if max(map(abs, offsets[0])) != 3 or not inside(tuple(map(abs, unit))):
                continue
            for steps, times in ((3, 2), (1, -3), (-1, 3)):
                sums.append((share(times * w, 2), v[at(tuple(steps * u for u in unit))]))
            rest -= w
            continue
        total = v[at(offsets[0])]
        for off in offsets[1:]:
            total = total + v[at(off)]
        sums.append((share(w, len(offsets)), total))
        rest -= w
    near = real(0)
    for d in between or odd:
        left = tuple(-u for u in units[d])
        near = near + v[at(left)]
        near = near + v[at(units[d] if inside(units[d]) else left)]
    guess = share(rest, 2 * len(between or odd)) * near
    for factor, total in sums:
        guess = guess + factor * total
    return guess


def decode_blocks(data: bytes, shape: tuple[int, ...], dtype: np.dtype, bound: float) -> np.ndarray:
    """Return the field that a payload of blocks holds, see docs/format/blocks.md."""
    reader, n, out = Reader(data), three(shape), np.empty(shape, dtype)
    assert reader.word() == 1
    edges = [1 << reader.word() for _ in range(3)]
    starts = list(itertools.product(*(range(0, m, e) for m, e in zip(n, edges, strict=True))))
    settings, *sizes = (reader.varint() for _ in range(1 + len(starts)))
    shared = Reader(data[reader.at : reader.at + settings])
    pair, margin, axes = shared.word(), shared.word(), shared.word()
    b = bound * ((1048574 - 256 * margin) / 1048576)
    thick, weights = tuple(1 + bool(axes & a) for a in (4, 2, 1)), {}
    for s, c in itertools.product((4, 2, 1), ORDER[1:]):
        groups = groups_of(c, thick)
        fitted = shared.word()
        weights[s, c] = weights_of(shared, groups) if fitted else cubic(c, groups)
    at, field = reader.at + settings, out.reshape(n)
    for start, size in zip(starts, sizes, strict=True):
        place = tuple(slice(i, i + e) for i, e in zip(start, edges, strict=True))
        block = Reader(data[at : at + size])
        field[place] = decode_block(block, field[place].shape, dtype, (pair, b), thick, weights)
        at += size
    assert at == len(data)
    return out


def decode_block(reader, n, dtype, pair_and_bound, thick, weights) -> np.ndarray:
    crc, size = reader.word(4), np.dtype(dtype).itemsize
    words = [reader.word(size).to_bytes(size, "little") for _ in range(reader.varint())]
    verbatim = iter(np.frombuffer(b"".join(words), np.dtype(dtype).newbyteorder("<")))
    q = table_integers(reader, n)
    pair, b = pair_and_bound
    shared = dict(weights)
    for s, _, c, _ in scan(n):
        if (s, c) not in shared:
            shared[s, c] = cubic(c, groups_of(c, thick))
    v = decode_levels(q, n, np.dtype(dtype), pair, b, thick, shared, verbatim, None)
    assert crc32c(v.astype(v.dtype.newbyteorder("<")).tobytes()) == crc
    return v


def table_integers(reader: Reader, n: tuple[int, ...]) -> dict:
    tables = [[reader.varint() for _ in range(reader.word())] for _ in range(24)]
    raw_bytes = reader.varint()
    bits = int.from_bytes(reader.data[reader.at : reader.at + raw_bytes], "little")
    reader.at += raw_bytes
    x = [reader.word(4) for _ in range(8)]
    q, count = {}, 0
    for s, _, _, points in scan(n):
        mag = {}
        for p in points:
            z, y, i = p
            near = [(z, y - 2 * s, i), (z - 2 * s, y, i)]
            around = [
                (z, y - 2 * s, i - 2 * s),
                (z, y - 2 * s, i + 2 * s),
                (z - 2 * s, y, i - 2 * s),
                (z - 2 * s, y, i + 2 * s),
                (z - 2 * s, y - 2 * s, i),
                (z - 2 * s, y + 2 * s, i),
            ]
            level = lg(2 * sum(mag.get(a, 0) for a in near) + sum(mag.get(a, 0) for a in around))
            slot, before, token = x[count % 8] % 4096, 0, 0
            while before + tables[level][token] <= slot:
                before += tables[level][token]
                token += 1
            state = tables[level][token] * (x[count % 8] // 4096) + slot - before
            x[count % 8] = state * 65536 + reader.word(2) if state < 65536 else state
            u = token
            if token >= 24:
                num = (token - 24) // 2 + 3
                u = ((2 + (token - 24) % 2) << num) + bits % (1 << num) + 8
                bits >>= num
            q[p] = u // 2 if u % 2 == 0 else -(u + 1) // 2
            mag[p] = min(abs(q[p]), 255)
            count += 1
    return q


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def decode_line(line, order, offset, step, real, verbatim) -> np.ndarray:
    out, last, before = np.empty(len(line), real), 0, 0
    for i, q in enumerate(line):
        p = (0, last, 2 * last - before)[order]
        if abs(q) == ESCAPE:
            out[i], k = next(verbatim), p
        else:
            k = p + q
            out[i] = real(offset + float(k) * step)
        before, last = last, k
    return out


def decode_chunk(
    data: bytes,
    shape: tuple[int, ...],
    dtype: np.dtype,
    bound: float,
    fill: float | None,
    linear: bytes = b"",
) -> np.ndarray:
    """Return the values of a framed chunk, see docs/format/chunk.md."""
    reader, little = Reader(data), np.dtype(dtype).newbyteorder("<")
    assert data[:4] == b"SciK"
    reader.at = 4
    version, kind, zero, size = reader.word(), reader.word(), reader.word(2), reader.word(4)
    assert (version, zero, size) == (kind // 2 + 1, 0, math.prod(shape) * little.itemsize)
    crc, values_crc = reader.word(4), reader.word(4)
    assert zlib.crc32(data[20:], zlib.crc32(data[16:20], zlib.crc32(data[:12]))) == crc
    if not kind:
        return np.frombuffer(data[20:], dtype).reshape(shape)
    if kind == 3:
        values = decode_lossless(data[20:], shape, little).astype(dtype)
        assert zlib.crc32(values.tobytes()) == values_crc
        return values
    mask = raw = None
    if kind == 5:
        padded = struct.pack("<I", 1 << 24 | len(linear)) + linear + bytes(-len(linear) % 4)
        assert reader.word(4) == zlib.crc32(padded)
    if reader.word():
        length = reader.varint()
        mask, raw = read_specials(data[reader.at : reader.at + length], shape, little, fill)
        reader.at += length
    if kind == 2:
        value = reader.word(little.itemsize).to_bytes(little.itemsize, "little")
        assert reader.at == len(data)
        values = np.full(shape, np.frombuffer(value, little)[0], little)
    elif kind == 4:
        values = decode_relative(data, reader, shape, little, bound, mask)
    elif kind == 5:
        inner = bound / 1.5 * (1 - 1e-6)
        values = decode(data[reader.at :], shape, little, inner, mask)
        values = corrected(values, linear, bound, 0.5 * inner)
    elif kind == 6:
        step = 2 * bound * (1 - 2.0**-12)
        values = decode(data[reader.at :], shape, little, 0.49 * step, mask)
        values = (np.rint(values.astype("f8") / step) * step).astype(little)
    else:
        values = decode(data[reader.at :], shape, little, bound, mask)
    if mask is not None:
        values[mask] = raw
    values = values.astype(dtype)
    assert zlib.crc32(values.tobytes()) == values_crc
    return values


def decode_relative(data, reader, shape, little, bound, mask) -> np.ndarray:
    """Return the values of a relative chunk from its signs and logarithms."""
    count, signs = math.prod(shape), reader.word()
    negative = [signs == 2] * count
    n_x, n_y = three(shape)[2], three(shape)[1]
    if signs == 1:
        length = reader.varint()
        coder, odds = Coder(data[reader.at : reader.at + length]), [32768] * 8
        reader.at += length
        special = np.zeros(count, bool) if mask is None else mask.reshape(-1)
        for i in range(count):
            before = [i >= d and negative[i - d] for d in (1, n_x, n_x * n_y)]
            at = before[0] + 2 * before[1] + 4 * before[2]
            if special[i]:
                negative[i] = bool(i and negative[i - 1])
                continue
            p = odds[at]
            negative[i] = bit = bool(coder.bit(p))
            odds[at] = p + ((65535 - p) >> 5) if bit else p - ((p - 1) >> 5)
    finest = 2.0**-23 if little.itemsize == 4 else 2.0**-49
    inner = log2(1 + (bound * (1 - 1e-9) - finest))
    logs = decode(data[reader.at :], shape, np.dtype("<f8"), inner, mask).reshape(-1)
    values = [-exp2(v) if minus else exp2(v) for v, minus in zip(logs, negative, strict=True)]
    return np.array(values).reshape(shape).astype(little)


def log2(x: float) -> float:
    m, e = math.frexp(x)
    m, e = 2 * m, e - 1
    if m > 1.4142135623730951:
        m, e = m / 2, e + 1
    f = (m - 1) / (m + 1)
    s, a = f * f, 1.0 / 21
    for k in range(19, 0, -2):
        a = a * s + 1.0 / k
    return e + 2 * f * a * 1.4426950408889634


def exp2(y: float) -> float:
    if not -1022 < y < 1024:
        return math.inf if y > 0 else 0.0
    n = float(np.rint(y))
    t, a = (y - n) * 0.6931471805599453, 1.0
    for k in range(14, 0, -1):
        a = a * t / k + 1
    return math.ldexp(a, int(n))


def corrected(values: np.ndarray, linear: bytes, bound: float, clip: float) -> np.ndarray:
    """Return values with the correction of a linear enhancer."""
    real, field = values.dtype.type, values.reshape(three(values.shape))
    num, kind, exponent, width = linear[:4]
    limits = np.frombuffer(linear, "<f4", num - 1, 4).astype(real)
    packed = np.frombuffer(linear, np.uint8, -1, 4 * num)
    bits = np.unpackbits(packed, count=10 * num * width, bitorder="little").reshape(-1, width)
    taps = (bits.astype(int) << np.arange(width)).sum(1) - (1 << (width - 1))
    taps = (taps * 2.0**-exponent).astype(real).reshape(num, 10)
    padded, unit = np.pad(field, 2, mode="edge"), real(1 / bound)

    def at(z: int, y: int, x: int) -> np.ndarray:
        return padded[
            tuple(slice(2 + o, 2 + o + n) for o, n in zip((z, y, x), field.shape, strict=True))
        ]

    def sums(*axes: int, step: int = 1) -> np.ndarray:
        total, signs = None, list(itertools.product((-1, 1), repeat=len(axes)))
        for sign in signs:
            offset = [0, 0, 0]
            for axis, s in zip(axes, sign, strict=True):
                offset[axis] = s * step
            total = at(*offset) if total is None else total + at(*offset)
        return (total - real(len(signs)) * field) * unit

    f = [sums(2), sums(1), sums(0), sums(1, 2), sums(0, 2), sums(0, 1), sums(0, 1, 2)]
    f += [sums(2, step=2), sums(1, step=2), sums(0, step=2)]
    measure = field if kind == 2 else abs(f[0]) + abs(f[1]) + abs(f[2])
    cls = (measure[..., None] >= limits).sum(-1)
    total = np.zeros_like(field)
    for i in range(10):
        total = total + taps[cls, i] * f[i]
    top = real(clip * (1 / bound))
    total = np.clip(total, -top, top)
    return (field + total * real(1 / (1 / bound))).reshape(values.shape)


def upper(a: int, b: int) -> int:
    h = (a + 0x9E3779B97F4A7C15 * (b + 1)) * 0xBF58476D1CE4E5B9
    return (h & (2**64 - 1)) >> 32


def decode_lossless(data: bytes, shape: tuple[int, ...], little: np.dtype) -> np.ndarray:
    """Return the values of a lossless chunk, see docs/format/chunk.md."""
    n, w = three(shape), little.itemsize
    count, row, slab = math.prod(n), n[2], n[1] * n[2]
    T = next((t for t in range(10, 18) if 2**t >= count * w), 18)
    model, odds, table = Model(Coder(data)), {}, {}
    v: list[int] = []
    at = length = 0
    for i in range(count):
        z, y, x = i // slab, i // row % n[1], i % row
        west = v[i - 1] if i else 0
        north = i - row if y else i - slab if z else i - 1
        line = west
        if x and (y or z):
            line = west + v[north] - v[north - 1]
        elif i > 1:
            line = 2 * west - v[i - 2]
        line %= 2 ** (8 * w)
        M, expected = (min(length + 1, 7), v[at]) if at else (0, 0)
        value = None
        if length >= 2:
            p = odds.get(lg(length), 32768)
            bit = model.coder.bit(p)
            odds[lg(length)] = p + ((65535 - p) >> 5) if bit else p - ((p - 1) >> 5)
            value = expected if bit else None
        if value is None:
            around = (west, v[north] if i else 0, line, expected)
            value = lossless_value(model, w, T, around, M)
        v.append(value)
        length = length + 1 if M and value == expected else 0
        at = at + 1 if length else 0
        if i >= 2:
            s = upper((v[i] ^ v[i - 1] << 1) & (2**64 - 1), v[i - 2]) >> (32 - T)
            at = at if length else table.get(s, 0)
            table[s] = i + 1
    sign, whole = 1 << (8 * w - 1), (1 << 8 * w) - 1
    raw = [a ^ sign if a & sign else a ^ whole for a in v]
    return np.array(raw, f"<u{w}").view(little).reshape(shape)


def lossless_value(model: Model, w: int, T: int, around: tuple[int, ...], M: int) -> int:
    g = 0
    for b in range(w - 1, -1, -1):
        W, N, L, E = (a >> 8 * b for a in around)
        same = (g == W >> 8) + 2 * (g == N >> 8)
        side = 0 if g < L >> 8 else 1 if g == L >> 8 else 2
        m = M if g == E >> 8 else 0
        bases = [
            upper(g, b),
            upper(b << 16 | same << 8 | W & 255, 11),
            upper(b << 16 | side << 8 | L & 255, 12),
            upper(b << 24 | same << 16 | (N & 255) << 8 | W & 255, 13),
            upper(around[0], (g << 3 | b) & (2**64 - 1)),
            upper(b << 16 | m << 8 | (E & 255 if m else 0), 14),
        ]
        which, half = 3 * b + (0 if not m else 1 if m <= 3 else 2), 0
        for _ in range(2):
            spread = [(base + half * 0x9E3779B1) * 0x85EBCA6B & 0xFFFFFFFF for base in bases]
            node = 1
            for _ in range(4):
                contexts = [s >> (36 - T) << 4 | node for s in spread]
                node = node << 1 | model.bit(contexts, which, 1000)
            g, half = g << 4 | node & 15, node
    return g


def read_specials(data, shape, little, fill) -> tuple[np.ndarray, np.ndarray]:
    coder, odds, same = Coder(data), [32768] * 64, [32768]
    n = three(shape)
    start = DEFAULT_FILL if fill is None else fill
    unsigned = f"<u{little.itemsize}"
    last, raw, mask = int(np.array(start, little).view(unsigned)), [], np.zeros(n, int)

    def adaptive(of, i):
        bit = coder.bit(of[i])
        of[i] += (65535 - of[i]) >> 5 if bit else -((of[i] - 1) >> 5)
        return bit

    for z, y, x in itertools.product(*map(range, n)):
        near = [
            (z, y, x - 1),
            (z, y - 1, x),
            (z - 1, y, x),
            (z, y - 1, x - 1),
            (z, y - 1, x + 1),
            (z, y, x - 2),
        ]
        inside = [min(p) >= 0 and p[2] < n[2] for p in near]
        context = sum(int(mask[p]) << i for i, p in enumerate(near) if inside[i])
        mask[z, y, x] = adaptive(odds, context)
        if mask[z, y, x]:
            if not adaptive(same, 0):
                last = 0
                for _ in range(8 * little.itemsize):
                    last = last << 1 | coder.bit(32768)
            raw.append(last)
    return mask.astype(bool).reshape(shape), np.array(raw, unsigned).view(little)

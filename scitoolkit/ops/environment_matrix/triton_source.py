"""Generator of the Triton kernels of the environment matrix: one program per centre.

A program loops over the types of neighbours and over tiles of EDGES edges of one type. The network
is evaluated by matrix products in registers, and forces and weights' gradients evaluate it again,
so that no activations are stored. With a table its polynomials replace the network. There are no
atomics, so that results are bit-identical from call to call.

Layers are padded to powers of two. A layer twice as wide as its input adds the input to both halves
of its *padded* width, so that the halves need no shift; `Padding` has the place of each function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from scitoolkit.ops.environment_matrix.spec import EnvironmentSpec

# Letters of the generated code as in `cpu.py`: s the switched inverse distance, r0..r3 the
# normalised row R, n0..n2 the unit vector, h and d the value and tangent of a layer.
EDGES = 16  # edges per tile; below LEAST, so that warps share rows and divide columns
LEAST = 32  # smallest padded width
MOST_PARAMETERS = 11_000  # padded, of a network, so that products of weights fit in shared memory
PROGRAMS = 512  # partial sums of weights' gradients, for any device

HEAD = """
import triton
import triton.language as tl


@triton.jit
def tanh(x):
    e = tl.exp(-2.0 * tl.abs(x))
    t = (1.0 - e) / (1.0 + e)
    return tl.where(x < 0, -t, t)


# Three products in TF32 have the accuracy of float32 on tensor cores; float64 is exact.
@triton.jit
def product(a, b):
    return tl.dot(a, b, input_precision="tf32x3", out_dtype=a.dtype)


@triton.jit
def twice(h):
    both = tl.broadcast_to(h[:, None, :], (h.shape[0], 2, h.shape[1]))
    return tl.reshape(both, (h.shape[0], 2 * h.shape[1]))


@triton.jit
def halves(c):
    return tl.sum(tl.reshape(c, (c.shape[0], 2, c.shape[1] // 2)), 1)
"""


@dataclass(frozen=True)
class Padding:
    """Padded widths of the layers of an embedding.

    Attributes:
        widths: padded width of each layer.
        functions: for each layer the function at each place of the padded width, -1 if none.
        parameters: for each packed parameter its index in the flat parameters of a network, or
            `num_parameters` for a zero.
        num_parameters: flat parameters of a network.

    Example:
        >>> padding = Padding.of((10, 20))
        >>> padding.widths, padding.functions[1][9:11], padding.functions[1][31:34]
        ((32, 64), (9, -1), (-1, 10, 11))
    """

    widths: tuple[int, ...]
    functions: tuple[tuple[int, ...], ...]
    parameters: tuple[int, ...]
    num_parameters: int

    @classmethod
    def of(cls, widths: Sequence[int]) -> Padding:
        """Return the padding of layers of these widths."""
        functions: list[tuple[int, ...]] = []
        for fan_in, fan_out in pairwise((0, *widths)):
            if fan_out == fan_in:
                functions.append(functions[-1])
            elif fan_out == 2 * fan_in:
                low = functions[-1]
                functions.append((*low, *(m if m < 0 else fan_in + m for m in low)))
            else:
                size = max(LEAST, 1 << (fan_out - 1).bit_length())
                functions.append(tuple(m if m < fan_out else -1 for m in range(size)))
        total = sum(a * b + b for a, b in pairwise((1, *widths)))
        parameters, offset = [], 0
        layers = zip(((0,), *functions), functions, widths, strict=False)
        for below, above, fan_out in layers:
            fan_in = sum(m >= 0 for m in below)
            for i in below:
                parameters += [total if min(i, m) < 0 else offset + i * fan_out + m for m in above]
            offset += fan_in * fan_out
            parameters += [total if m < 0 else offset + m for m in above]
            offset += fan_out
        return cls(tuple(map(len, functions)), tuple(functions), tuple(parameters), total)

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """Offsets of each layer's weights and bias in the packed parameters of a network."""
        out, offset = [], 0
        for fan_in, fan_out in pairwise((1, *self.widths)):
            out.append((offset, offset + fan_in * fan_out))
            offset += fan_in * fan_out + fan_out
        return out


def refusal(spec: EnvironmentSpec) -> str:
    """Return why there are no kernels for a spec, empty if there are."""
    if spec.radial:
        return "there is no kernel for the radial descriptor (se_e2_r)"
    if len(Padding.of(spec.widths).parameters) > MOST_PARAMETERS:
        widths = " x ".join(map(str, spec.widths))
        return f"there is no GPU kernel for embeddings as wide as {widths}"
    return ""


def shared_bytes(spec: EnvironmentSpec) -> int:
    """Return a bound on the shared memory of a program for the gradients of weights."""
    return 14_000 + 20 * len(Padding.of(spec.widths).parameters)  # measured, compute capability 9


class _Generator:
    """Lines of the kernels of a spec."""

    def __init__(self, spec: EnvironmentSpec) -> None:
        self.spec, self.padding = spec, Padding.of(spec.widths)
        self.last = len(spec.widths) - 1
        self.wide = self.padding.widths[-1]

    def skip(self, k: int) -> str:
        """Return the shortcut of layer k: `same`, `twice`, or nothing."""
        fan_in, fan_out = (1, *self.spec.widths)[k : k + 2]
        if not k:
            return ""
        return "same" if fan_out == fan_in else "twice" if fan_out == 2 * fan_in else ""

    def begin(self) -> list[str]:
        """Return lines that assign the lanes of the last layer and their functions."""
        return [
            f"lane = tl.arange(0, {self.wide})",
            "m = tl.load(PLACES + lane)",
            "valid = m >= 0",
        ]

    def centre(self) -> list[str]:
        """Return lines that load what belongs to the centre of row `row`."""
        lines = ["i = tl.load(atoms + row)", "own = tl.load(types + i)"]
        for c in range(4):
            lines += [
                f"mean{c} = tl.load(MEAN + own * 4 + {c})",
                f"dev{c} = tl.load(DEVIATION + own * 4 + {c})",
            ]
        return lines

    def segment(self) -> list[str]:
        """Return lines that assign the edges of neighbours of type `other` and their network."""
        types = self.spec.num_types
        return [
            f"begin = tl.load(segments + i * {types} + other)",
            f"end = tl.load(segments + i * {types} + other + 1)",
            "network = other" if self.spec.type_one_side else f"network = own * {types} + other",
        ]

    def weights(self, *, hidden: bool = True) -> list[str]:
        """Return lines that load the packed parameters of `network`.

        Args:
            hidden: include the weights of the layers after the first.
        """
        lines = [f"W = WEIGHTS + network * {len(self.padding.parameters)}"]
        for k, (_, bias) in enumerate(self.padding.offsets):
            lines.append(f"b{k} = tl.load(W + {bias} + tl.arange(0, {self.padding.widths[k]}))")
            lines += [self.weight(k)] if hidden or k == 0 else []
        return lines

    def weight(self, k: int, *, transposed: bool = False) -> str:
        """Return the line that loads the weights of layer k."""
        return f"w{k} = tl.load(W + {self.place(k, transposed=transposed)})"

    def place(self, k: int, *, transposed: bool = False) -> str:
        """Return the places of the weights of layer k in the packed parameters of a network."""
        width, begin = self.padding.widths[k], self.padding.offsets[k][0]
        if k == 0:
            return f"{begin} + tl.arange(0, {width})"
        row, column = f"tl.arange(0, {self.padding.widths[k - 1]})", f"tl.arange(0, {width})"
        rows, columns = ("[None, :]", "[:, None]") if transposed else ("[:, None]", "[None, :]")
        return f"{begin} + {row}{rows} * {width} + {column}{columns}"

    def geometry(self) -> list[str]:
        """Return lines that compute the normalised rows of the edges `e`, zero outside."""
        spec = self.spec
        return [
            f"e = first + tl.arange(0, {EDGES})",
            "inside = e < end",
            *(f"x{k} = tl.load(VECTORS + 3 * e + {k}, mask=inside, other=1.0)" for k in range(3)),
            "r = tl.sqrt(x0 * x0 + x1 * x1 + x2 * x2)",
            f"u = (r - {spec.cutoff_smooth!r}) / {spec.cutoff - spec.cutoff_smooth!r}",
            "between = (u > 0) & (u < 1)",
            "w = tl.where(between, (1.0 - u) * (1.0 - u) * (1.0 - u) * (1.0 + u * (3.0 + 6.0 * u)),"
            " tl.where(u >= 1, 0.0, 1.0))",
            "dw = tl.where(between, -30.0 * u * u * (u - 1.0) * (u - 1.0), 0.0)"
            f" / {spec.cutoff - spec.cutoff_smooth!r}",
            "s = w / r",
            "side = s / r",  # s/r, of which the directional columns are multiples
            "slope = dw / r - side",  # ds/dr
            "r0 = tl.where(inside, (s - mean0) / dev0, 0.0)",
            *(
                f"r{k + 1} = tl.where(inside, (side * x{k} - mean{k + 1}) / dev{k + 1}, 0.0)"
                for k in range(3)
            ),
        ]

    def tangents(self) -> list[str]:
        """Return lines that compute v0..v3, the derivative of the rows along the tangent."""
        return [
            *(f"u{k} = tl.load(TANGENT + 3 * e + {k}, mask=inside, other=0.0)" for k in range(3)),
            "along = (x0 * u0 + x1 * u1 + x2 * u2) / r",
            "v0 = slope * along / dev0",
            *(
                f"v{k + 1} = (side * u{k} + (slope - side) * along * x{k} / r) / dev{k + 1}"
                for k in range(3)
            ),
        ]

    def embed(self, *, tangent: bool, value: str = "h", slope: str = "d") -> list[str]:
        """Return lines that compute the layers' values and, if asked for, tangents."""
        lines = ["t0 = tanh(r0[:, None] * w0[None, :] + b0[None, :])", "h0 = t0"]
        if tangent:
            lines += ["g0 = (1.0 - t0 * t0) * w0[None, :]", "d0 = g0"]
        for k in range(1, self.last + 1):
            skip = {"": "", "same": " + {}", "twice": " + twice({})"}[self.skip(k)]
            lines += [
                f"t{k} = tanh(product(h{k - 1}, w{k}) + b{k}[None, :])",
                f"h{k} = t{k}{skip.format(f'h{k - 1}')}",
            ]
            if tangent:
                lines += [
                    f"g{k} = (1.0 - t{k} * t{k}) * product(d{k - 1}, w{k})",
                    f"d{k} = g{k}{skip.format(f'd{k - 1}')}",
                ]
        ends = [f"{value} = h{self.last}", *([f"{slope} = d{self.last}"] if tangent else [])]
        return lines + ends

    def tabulated(self, *, tangent: bool) -> list[str]:
        """Return lines that compute h and d from the table, or the network beyond its end."""
        network = self.embed(tangent=tangent, value="exact", slope="steep")
        horner = ["h = tl.load(piece + 5 * GROUP, mask=there, other=0.0)"]
        horner += ["d = h * 0.0"] if tangent else []
        for power in range(4, -1, -1):
            horner += ["d = d * x + h"] if tangent else []
            horner += [f"h = h * x + tl.load(piece + {power} * GROUP, mask=there, other=0.0)"]
        return [
            "place = (r0 - lower) / step",
            "near = place < pieces",
            "k = tl.where(near & (place > 0), place, 0.0).to(tl.int64)",
            "x = (r0 - (lower + k.to(r0.dtype) * step))[:, None]",
            "piece = TABLE + (network * pieces + k)[:, None] * size + column[None, :]",
            "there = (inside & near)[:, None] & valid[None, :]",
            *horner,
            "far = inside & (near == 0)",
            "if tl.max(far.to(tl.int32), 0) > 0:",
            *("    " + line for line in (*self.weights(), *network)),
            "    h = tl.where(far[:, None], exact, h)",
            *(["    d = tl.where(far[:, None], steep, d)"] if tangent else []),
        ]

    def table(self) -> list[str]:
        """Return lines that assign the constants of a table; see `Table.values`."""
        return [
            "lower = tl.load(RANGE)",
            "step = tl.load(RANGE + 1)",
            "size = GROUPS * 6 * GROUP",
            "column = m // GROUP * (6 * GROUP) + m % GROUP",
        ]

    def cotangents(self, name: str, to: str) -> list[str]:
        """Return lines that load the cotangents of the moments of `row`, divided by `sel`."""
        at = f"(row * {self.spec.widths[-1]} + m) * 4"
        slots = float(sum(self.spec.sel))
        return [
            f"{to}{c} = tl.load({name} + {at} + {c}, mask=valid, other=0.0) / {slots!r}"
            for c in range(4)
        ]

    def sums(self, terms: Sequence[str], embed: list[str], once: list[str]) -> list[str]:
        """Return lines that add up `terms`, one per column, over all edges and store them."""
        edges = [*self.geometry(), *embed]
        edges += [f"out{c} += tl.sum({term}, 0)" for c, term in enumerate(terms)]
        at = f"(row * {self.spec.widths[-1]} + m) * 4"
        slots = float(sum(self.spec.sel))
        return [
            "row = tl.program_id(0).to(tl.int64)",
            *self.begin(),
            *self.centre(),
            *(f"out{c} = tl.zeros([{self.wide}], VECTORS.dtype.element_ty)" for c in range(4)),
            *self._loops(once, edges),
            *(f"tl.store(OUT + {at} + {c}, out{c} / {slots!r}, mask=valid)" for c in range(4)),
        ]

    def forces(self, embed: list[str], once: list[str]) -> list[str]:
        """Return lines that store d<cotangent, moments>/d(vector) of all edges."""
        edges = [
            *self.geometry(),
            *embed,
            *(f"y{c} = tl.sum(h * c{c}[None, :], 1)" for c in range(4)),
            "turned = r0[:, None] * c0[None, :]",
            *(f"turned += r{c}[:, None] * c{c}[None, :]" for c in range(1, 4)),
            "y0 = (y0 + tl.sum(d * turned, 1)) / dev0",
            *(f"y{c} = y{c} / dev{c}" for c in range(1, 4)),
            "radial = (y1 * x0 + y2 * x1 + y3 * x2) / r",
            "radial = y0 * slope + (slope - side) * radial",
            *(
                f"tl.store(OUT + 3 * e + {k}, radial * x{k} / r + side * y{k + 1}, mask=inside)"
                for k in range(3)
            ),
        ]
        return [
            "row = tl.program_id(0).to(tl.int64)",
            *self.begin(),
            *self.centre(),
            *self.cotangents("COTANGENT", "c"),
            *self._loops(once, edges),
        ]

    def _loops(self, once: list[str], edges: list[str]) -> list[str]:
        return [
            f"for other in range({self.spec.num_types}):",
            *("    " + line for line in (*self.segment(), *once)),
            f"    for first in range(begin, end, {EDGES}):",
            *("        " + line for line in edges),
        ]

    def weight_gradients(self, *, forces: bool) -> list[str]:
        """Return lines of a program's part of the gradients of the packed weights of a network.

        Let p, q be the cotangents of the value and of the tangent of a layer; see
        `cpu._embed_gradient`.
        """
        types = self.spec.num_types
        real = "VECTORS.dtype.element_ty"
        shapes = [
            (f"[{b}]" if k == 0 else f"[{a}, {b}]", f"[{b}]")
            for k, (a, b) in enumerate(pairwise((1, *self.padding.widths)))
        ]
        zeros = [f"gw{k} = tl.zeros({w}, {real})" for k, (w, _) in enumerate(shapes)]
        zeros += [f"gb{k} = tl.zeros({b}, {real})" for k, (_, b) in enumerate(shapes)]
        # Weights that stay in registers during the loop would leave none for the sums.
        edges = [*self.geometry(), *map(self.weight, range(1, self.last + 1))]
        edges += self.embed(tangent=forces)
        edges += ["p = r0[:, None] * c0[None, :]"]
        edges += [f"p += r{c}[:, None] * c{c}[None, :]" for c in range(1, 4)]
        if forces:
            edges += [
                *self.tangents(),
                *(f"p += v{c}[:, None] * f{c}[None, :]" for c in range(4)),
                "q = r0[:, None] * f0[None, :]",
                *(f"q += r{c}[:, None] * f{c}[None, :]" for c in range(1, 4)),
                "q = q * v0[:, None]",
            ]
        for k in range(self.last, -1, -1):
            edges += [f"rise = 1.0 - t{k} * t{k}", "pz = p * rise"]
            if forces:
                edges += [f"pz -= 2.0 * t{k} * q * g{k}", "qz = q * rise"]
            edges.append(f"gb{k} += tl.sum(pz, 0)")
            if k == 0:
                more = " + qz" if forces else ""
                edges.append(f"gw0 += tl.sum(pz * r0[:, None]{more}, 0)")
                break
            edges.append(f"gw{k} += product(tl.trans(h{k - 1}), pz)")
            edges.append(self.weight(k, transposed=True))
            skip = {"": "", "same": " + {}", "twice": " + halves({})"}[self.skip(k)]
            if forces:
                edges += [
                    f"gw{k} += product(tl.trans(d{k - 1}), qz)",
                    f"q = product(qz, w{k}){skip.format('q')}",
                ]
            edges.append(f"p = product(pz, w{k}){skip.format('p')}")
        size = len(self.padding.parameters)
        stores = [f"G = OUT + (part * tl.num_programs(1) + network) * {size}"]
        for k, (_, bias) in enumerate(self.padding.offsets):
            lanes = f"tl.arange(0, {self.padding.widths[k]})"
            stores.append(f"tl.store(G + {self.place(k)}, gw{k})")
            stores.append(f"tl.store(G + {bias} + {lanes}, gb{k})")
        one_sided = self.spec.type_one_side
        bounds = [
            f"begin = tl.load(segments + i * {types} + other)",
            f"end = tl.load(segments + i * {types} + other + 1)",
            *([] if one_sided else [f"end = tl.where(own == network // {types}, end, begin)"]),
        ]
        return [
            "part = tl.program_id(0).to(tl.int64)",
            "network = tl.program_id(1).to(tl.int64)",
            f"other = network % {types}",
            *self.begin(),
            *self.weights(hidden=False),
            *zeros,
            "for row in range(part, N, tl.num_programs(0)):",
            *("    " + line for line in self.centre()),
            *("    " + line for line in bounds),
            *("    " + line for line in self.cotangents("COTANGENT", "c")),
            *(("    " + line for line in self.cotangents("FORCE", "f")) if forces else ()),
            f"    for first in range(begin, end, {EDGES}):",
            *("        " + line for line in edges),
            *stores,
        ]


GRAPH = "atoms, segments, types, PLACES, VECTORS, MEAN, DEVIATION, WEIGHTS"
TABLE = f"{GRAPH}, TABLE, RANGE, pieces"


def generate(spec: EnvironmentSpec) -> str:
    """Return the Triton source of all kernels of a spec, for both precisions.

    Example:
        >>> "def moments(atoms, segments," in generate(EnvironmentSpec(6.0, 0.5, (46,), (25, 50)))
        True
    """
    lines = _Generator(spec)
    values = [f"h * r{c}[:, None]" for c in range(4)]
    tangents = ["h * v0[:, None] + d * (v0 * r0)[:, None]"]
    tangents += [f"h * v{c}[:, None] + d * (v0 * r{c})[:, None]" for c in range(1, 4)]
    network, table = lines.weights(), lines.table()
    both = lines.embed(tangent=True)
    groups = "GROUPS: tl.constexpr, GROUP: tl.constexpr"
    return HEAD + "".join(
        [
            _kernel(
                "moments", f"{GRAPH}, OUT", lines.sums(values, lines.embed(tangent=False), network)
            ),
            _kernel("edge_gradients", f"{GRAPH}, COTANGENT, OUT", lines.forces(both, network)),
            _kernel(
                "moments_jvp",
                f"{GRAPH}, TANGENT, OUT",
                lines.sums(tangents, [*both, *lines.tangents()], network),
            ),
            _kernel(
                "weight_gradients",
                f"N, {GRAPH}, COTANGENT, OUT",
                lines.weight_gradients(forces=False),
            ),
            _kernel(
                "force_weight_gradients",
                f"N, {GRAPH}, COTANGENT, FORCE, TANGENT, OUT",
                lines.weight_gradients(forces=True),
            ),
            _kernel(
                "table_moments",
                f"{TABLE}, OUT, {groups}",
                lines.sums(values, lines.tabulated(tangent=False), table),
            ),
            _kernel(
                "table_edge_gradients",
                f"{TABLE}, COTANGENT, OUT, {groups}",
                lines.forces(lines.tabulated(tangent=True), table),
            ),
        ]
    )


def _kernel(name: str, arguments: str, lines: Sequence[str]) -> str:
    body = "\n".join("    " + line for line in lines)
    counts = [count for count in ("N", "pieces") if count in arguments.split(", ")]
    return f"\n\n@triton.jit(do_not_specialize={counts})\ndef {name}({arguments}):\n{body}\n"

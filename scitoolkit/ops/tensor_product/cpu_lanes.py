"""C expressions for loads and stores of vectors of channels or of single remaining channels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class SimdLane:
    """`width` vectors of channels (type vec) or single channels (type acc) at a time."""

    type: str
    width: int

    @property
    def indices(self) -> range:
        return range(self.width)

    def at(self, address: str, t: int) -> str:
        return f"{address}+{t}*LANES" if t else address

    def load(self, address: str, t: int = 0) -> str:
        """Return the expression that loads from an array of type `real`."""
        return f"{'ld' if self.type == 'vec' else 'ld1'}({self.at(address, t)})"

    def load_weight(self, array: str, offset: int, stride: int, t: int = 0) -> str:
        if stride == 1:
            return self.load(f"{array}+{offset}+u", t)
        place = f"{array}+{offset}+v+({self.at('u', t)})*{stride}"
        return f"gather({place}, {stride})" if self.type == "vec" else f"ld1({place})"

    def store_weight(
        self, offset: int, stride: int, value: str, numel: int, add: bool, t: int = 0
    ) -> str:
        """Return the statement that stores or adds a gradient of uvu weights in rows of `numel`."""
        kind = "add" if add else "put"
        vector = self.type == "vec"
        if stride > 1:
            place = f"gw+{offset}+v+({self.at('u', t)})*{stride}"
            return (
                f"{kind}_scatter({place}, {stride}, {value});"
                if vector
                else f"{kind}1({place}, {value});"
            )
        place = self.at(f"gw+{offset}+u", t)
        return self.store(place, value, add, f"{numel} % LANES == 0 && {offset} % LANES == 0")

    def store(self, place: str, value: str, add: bool, fits: str) -> str:
        """Return the statement that stores or adds a gradient.

        Stores bypass the caches if `fits` (a C condition) says that vectors are aligned.
        """
        kind = "add" if add else "put"
        if self.type == "vec":
            return f"{kind}({place}, {value}, {fits});"
        return f"{kind}1({place}, {value});"

    def accumulator(self, address: str, t: int = 0) -> str:
        """Return an lvalue in an array of accumulators of type `acc`."""
        kind = "vecu" if self.type == "vec" else "acc"
        return f"(*({kind} *)({self.at(address, t)}))"


SCALAR = SimdLane("acc", 1)


def channel_loops(mul: int, width: int, body: Callable[[SimdLane], str], index: str = "u") -> str:
    """Return loops over `mul` channels: `width` vectors at once, then fewer, then single channels.

    All bounds are preprocessor constants, so that empty loops are not compiled.
    """
    parts, begin = [], "0"
    while width:
        step = f"{width}*LANES"
        end = f"{mul}/({step})*({step})"
        parts.append(_loop(index, begin, end, step, SimdLane("vec", width), body))
        begin, width = end, width // 2
    parts.append(_loop(index, begin, str(mul), "1", SCALAR, body))
    return "\n".join(parts)


def _loop(index: str, begin: str, end: str, step: str, lane: SimdLane, body) -> str:
    head = f"for (int {index} = {begin}; {index} < {end}; {index} += {step})"
    return (
        f'\n#if {begin} < {end}\n_Pragma("GCC unroll 1") {head} {{'
        f"\ntypedef {lane.type} T;\n{body(lane)}\n}}\n#endif\n"
    )

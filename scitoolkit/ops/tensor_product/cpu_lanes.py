"""How a body of C reads and writes: vectors of channels first, the remainder one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class SimdLane:
    """Vectors of channels (type vec) or single channels (type acc); `width` of them at once."""

    type: str
    width: int

    @property
    def indices(self) -> range:
        return range(self.width)

    def at(self, address: str, t: int) -> str:
        return f"{address}+{t}*LANES" if t else address

    def load(self, address: str, t: int = 0) -> str:
        """Read what the caller gave, stored as `real`."""
        return f"{'ld' if self.type == 'vec' else 'ld1'}({self.at(address, t)})"

    def load_weight(self, array: str, offset: int, stride: int, t: int = 0) -> str:
        if stride == 1:
            return self.load(f"{array}+{offset}+u", t)
        place = f"{array}+{offset}+v+({self.at('u', t)})*{stride}"
        return f"gather({place}, {stride})" if self.type == "vec" else f"ld1({place})"

    def store_weight(
        self, offset: int, stride: int, value: str, numel: int, add: bool, t: int = 0
    ) -> str:
        """Write (or add) a gradient of uvu weights, in a row of `numel`."""
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
        """Write (or add) gradients; whole aligned vectors, where `fits` holds, pass the caches."""
        kind = "add" if add else "put"
        if self.type == "vec":
            return f"{kind}({place}, {value}, {fits});"
        return f"{kind}1({place}, {value});"

    def accumulator(self, address: str, t: int = 0) -> str:
        """An lvalue in rows of accumulators, stored as `acc`."""
        kind = "vecu" if self.type == "vec" else "acc"
        return f"(*({kind} *)({self.at(address, t)}))"


SCALAR = SimdLane("acc", 1)


def channel_loops(mul: int, width: int, body: Callable[[SimdLane], str], index: str = "u") -> str:
    """Loops over `mul` channels: `width` vectors at once, then half as many, then single channels.

    All bounds are constants of the preprocessor, so loops that do not run cost no compilation.
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

"""The table of docs/how-to/choose-a-potential.md, from the results of four benchmarks."""

from __future__ import annotations

from _places import ROOT
from _stored import stored

PAGE = ROOT / "docs" / "how-to" / "choose-a-potential.md"
BEGIN = "<!-- potentials: written by `python benchmarks/readme.py` -->"
END = "<!-- end of potentials -->"


def table() -> str:
    """Return the table, empty when nothing is stored."""
    names = ("potential_deepmd", "potential_se_atten", "potential_mace", "potential_memory")
    deep, attention, mace, memory = map(stored, names)
    if None in (deep, attention, mace, memory):
        return ""
    own, peer = deep["us_per_atom"]["192"], "192 atoms of water, float64"
    rows = [
        (
            "`se_e2_a`, tables",
            peer,
            own["compressed"],
            None,
            f"deepmd-kit, compressed: {own['peer_compressed']:.0f} us",
        ),
        (
            "`se_e2_a`",
            peer,
            own["plain"],
            1.024 * deep["memory_kib_per_atom_12000"],
            f"deepmd-kit: {own['peer_plain']:.0f} us",
        ),
        *(
            (
                f"`se_atten`, {text}",
                peer,
                1e3 * attention[f"ms_per_atom_{layers}_layers"],
                None,
                f"deepmd-kit: {1e3 * attention[f'peer_ms_per_atom_{layers}_layers']:.0f} us",
            )
            for layers, text in ((0, "no attention"), (2, "2 layers"))
        ),
        (
            "`mace`, small",
            f"{mace['atoms']} atoms of water, float32",
            mace["us_per_atom_small"],
            None,
            f"mace-torch: {1e3 * mace['mace_energy_forces_ms_small'] / mace['atoms']:.0f} us",
        ),
        (
            "`mace`, large",
            f"{mace['atoms']} atoms of water, float32",
            mace["us_per_atom_large"],
            None,
            f"mace-torch: {1e3 * mace['mace_energy_forces_ms_large'] / mace['atoms']:.0f} us",
        ),
        (
            "`mace`, C library",
            "100,000 atoms, 64 channels, float32",
            memory["us_100000_float32"],
            memory["kb_100000_float32"],
            "",
        ),
        (
            "`mace`, C library",
            "100,000 atoms, 64 channels, float64",
            memory["us_100000_float64"],
            memory["kb_100000_float64"],
            "",
        ),
    ]
    lines = [
        "Energies and forces on one thread (`potential_deepmd`, `potential_se_atten`, "
        "`potential_mace`, `potential_memory`; processors differ, so compare within a row):",
        "",
        "| model | case | us an atom | kB an atom | peer, same machine |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {case} | {micro:.0f} | {'' if size is None else f'{size:.0f}'} | {rival} |"
        for name, case, micro, size, rival in rows
    ]
    return "\n".join(lines)

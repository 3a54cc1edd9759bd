"""The table of docs/how-to/choose-a-potential.md, from the results of three benchmarks."""

from __future__ import annotations

from _stored import ROOT, stored

PAGE = ROOT / "docs" / "how-to" / "choose-a-potential.md"
BEGIN = "<!-- potentials: written by `python benchmarks/readme.py` -->"
END = "<!-- end of potentials -->"


def table() -> str:
    """Return the table, empty when nothing is stored."""
    deep, mace, memory = map(stored, ("potential_deepmd", "potential_mace", "potential_memory"))
    if None in (deep, mace, memory):
        return ""
    own, peer = deep["us_per_atom"]["192"], "192 atoms of water, float64"
    rows = [
        ("`se_e2_a`, tables", peer, own["compressed"], None,
         f"deepmd-kit, compressed: {own['peer_compressed']:.0f} us"),
        ("`se_e2_a`", peer, own["plain"], 1.024 * deep["memory_kib_per_atom_12000"],
         f"deepmd-kit: {own['peer_plain']:.0f} us"),
        ("`mace`, small", f"{mace['atoms']} atoms of water, float32", mace["us_per_atom_small"],
         None, f"mace-torch: {1e3 * mace['mace_energy_forces_ms_small'] / mace['atoms']:.0f} us"),
        ("`mace`, large", f"{mace['atoms']} atoms of water, float32", mace["us_per_atom_large"],
         None, f"mace-torch: {1e3 * mace['mace_energy_forces_ms_large'] / mace['atoms']:.0f} us"),
        ("`mace`, C library", "100,000 atoms, 64 channels, float32",
         memory["us_100000_float32"], memory["kb_100000_float32"], ""),
        ("`mace`, C library", "100,000 atoms, 64 channels, float64",
         memory["us_100000_float64"], memory["kb_100000_float64"], ""),
    ]  # fmt: skip
    lines = [
        "Energies and forces on one thread (`potential_deepmd`, `potential_mace`, "
        "`potential_memory`; processors differ, so compare within a row):",
        "",
        "| model | case | us an atom | kB an atom | peer, same machine |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {case} | {micro:.0f} | {'' if size is None else f'{size:.0f}'} | {rival} |"
        for name, case, micro, size, rival in rows
    ]
    return "\n".join(lines)

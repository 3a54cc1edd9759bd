"""One process of the spatial inference: prints its peak resident memory in GiB."""

from __future__ import annotations

import resource
import sys

import torch
import torch.distributed as dist
from emulation_spatial import job, layout

from scitoolkit.emulation.emulator import build
from scitoolkit.emulation.spatial.slab_training import Slab

NETWORK = {"name": "convnext_unet", "widths": [32, 64], "patch": 4, "kernel": 3, "blocks": 1}


def main() -> None:
    """Make a slab of random fields and advance it by one step."""
    cells = int(sys.argv[1])
    dims = ("x", "y", "z")
    config = job(NETWORK, dims)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    grid = layout(dict.fromkeys(dims, cells))
    slab = Slab(config, grid)
    # Coordinates of the whole grid are lists; position channels are not asked for.
    part = slab.emulator(build(config, grid)).eval()
    thick = slab.cells.stop - slab.cells.start
    state = [torch.randn(1, thick, cells, cells) for _ in "abuw"]
    with torch.no_grad():
        out = part(*state)
    assert all(torch.isfinite(x).all() for x in out)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
    dist.destroy_process_group()


main()

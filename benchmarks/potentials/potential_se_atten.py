"""se_atten (DPA-1) on 192 atoms of water, compared with deepmd-kit's TensorFlow backend.

Models of deepmd-kit's default sizes with the statistics of the data are written as deepmd-kit's
files, converted by it and evaluated by both in turn (float64, one thread, neighbour lists included,
medians of CPU seconds). Gates: deepmd-kit's energies, forces and virials, and those of the plain
torch reference, to 1e-10 relative. The TensorFlow backend has another form of attention and does
not support the smooth one, so both run that form, at the same sizes. The floor is the arithmetic of
the matrix products at the rate of torch's matrix product.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from _measure import machine
from potential_deepmd import GATE, PEER, Peer, call, our_call, test_frames

ROUNDS = 7
DESCRIPTOR = {"name": "se_atten", "cutoff": 6.0, "sel": 138}
QUANTITIES = (("energy", "energy"), ("forces", "force"), ("virial", "virial"))


def run() -> dict:
    if not (PEER / "dp").exists():
        raise SystemExit("deepmd-kit is not installed: make peers")
    import torch

    torch.set_num_threads(1)
    frame = test_frames()[0]
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        for layers in (0, 2):
            figures |= measure(Path(folder), frame, layers)
    return {**figures, "peer": "deepmd-kit 3.2.0, TensorFlow CPU", **machine()}


def model_of(frame, **settings):
    """Return an untrained model with the statistics of a frame."""
    from scitoolkit.potentials import models
    from scitoolkit.potentials.graph import configuration_graph

    config = models.get("deep_potential")(descriptors=[{**DESCRIPTOR, **settings}])
    model = config.build(["O", "H"])
    model.fit_statistics([configuration_graph(frame, model.type_map, model.cutoff)])
    return model.eval()


def measure(folder: Path, frame, layers: int) -> dict:
    from scitoolkit.potentials import write_deepmd

    smooth = model_of(frame, attention_layers=layers)
    sharp = model_of(frame, attention_layers=layers, smooth=False, temperature=1.0, gate_floor=1e-6)
    name = f"layers{layers}"
    write_deepmd(sharp, folder / f"{name}.dp")
    call([PEER / "dp", "convert-backend", f"{name}.dp", f"{name}.pb"], folder)
    agreement = max(of_kernels(model, frame) for model in (smooth, sharp))
    refuse("the plain torch reference", agreement)
    seconds: dict[str, list[float]] = {"ours": [], "sharp": [], "reference": [], "peer": []}
    with Peer(folder) as peer:
        peer.call(f"{name}.pb", frame, folder / "answer.npz")
        deviation = relative(np.load(folder / "answer.npz"), our_call(sharp, frame)[1])
        refuse("deepmd-kit", deviation)
        for _ in range(ROUNDS):
            seconds["peer"].append(peer.call(f"{name}.pb", frame))
            seconds["ours"].append(our_call(smooth, frame)[0])
            seconds["sharp"].append(our_call(sharp, frame)[0])
            use_kernels(smooth, False)
            seconds["reference"].append(our_call(smooth, frame)[0])
            use_kernels(smooth, True)
    per_atom = {k: 1e3 * statistics.median(v) / len(frame.species) for k, v in seconds.items()}
    floor = 1e3 * floor_seconds(smooth, frame) / len(frame.species)
    names = {"ours": "", "sharp": "not_smooth_", "reference": "reference_", "peer": "peer_"}
    return {
        f"energy_forces_speedup_{layers}_layers": per_atom["peer"] / per_atom["sharp"],
        f"reference_speedup_{layers}_layers": per_atom["reference"] / per_atom["ours"],
        **{f"{names[k]}ms_per_atom_{layers}_layers": v for k, v in per_atom.items()},
        f"floor_ms_per_atom_{layers}_layers": floor,
        f"agreement_{layers}_layers": agreement,
        f"peer_deviation_{layers}_layers": deviation,
    }


def use_kernels(model, wanted: bool) -> None:
    for each in model.descriptors:
        each.use_kernels = wanted


def of_kernels(model, frame) -> float:
    """Return the largest relative deviation of the kernels from the plain torch reference."""
    ours = our_call(model, frame)[1]
    use_kernels(model, False)
    wanted = our_call(model, frame)[1]
    use_kernels(model, True)
    return relative({key: wanted[name].numpy() for name, key in QUANTITIES}, ours)


def relative(theirs, ours) -> float:
    """Return the largest deviation of energies, forces and virials, relative to the largest."""
    worst = 0.0
    for name, key in QUANTITIES:
        a, b = ours[name].numpy().ravel(), theirs[key].ravel()
        worst = max(worst, float(np.abs(a - b).max() / np.abs(b).max()))
    return worst


def refuse(whom: str, deviation: float) -> None:
    if deviation > GATE:
        raise SystemExit(f"red gate: deviation {deviation} from {whom}")


def floor_seconds(model, frame) -> float:
    """Return the least time of the matrix products, forward and back, at the rate of dgemm."""
    import torch

    from scitoolkit.potentials.graph import configuration_graph

    graph = configuration_graph(frame, model.type_map, model.cutoff)
    each = graph["segments"].diff().view(len(frame.species), -1).sum(1).double()
    edges, pairs = float(each.sum()), float(each.square().sum())
    config = model.descriptors[0].config
    basis, hidden = config.embedding[-1], config.attention_width
    layer = 2 * edges * 4 * basis * hidden * 2 + 2 * pairs * hidden * 6
    inner = sum(a * b for a, b in zip(config.embedding, config.embedding[1:], strict=False))
    fitting, last = 0, model.fitting.weight[0].shape[1]
    for width in model.config.fitting:
        fitting, last = fitting + last * width, width
    flops = config.attention_layers * layer + 4 * edges * inner + 4 * len(each) * fitting
    a = torch.randn(1024, 1024, dtype=torch.float64)
    times = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        a @ a
        times.append(time.process_time() - begin)
    return flops * statistics.median(times) / (2 * 1024**3)

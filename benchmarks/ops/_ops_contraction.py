"""The symmetric contraction compared with mace-torch's at correlation 3, in the peer's process.

Run by the interpreter of `.venv-peers/mace`, which has scitoolkit and mace-torch: the two alternate
on the same float32 features, weights and elements, one thread, CPU time. Before any timing, values
and gradients are compared with mace-torch in float64.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings

from _places import BENCHMARKS, PEERS, ROOT

PEER = PEERS / "mace" / "bin" / "python"
NODES, CHANNELS, CORRELATION = 192, 64, 3
PROBLEMS = {
    "small": ("0e+1o+2e", "0e+1o"),
    "large": ("0e+1o+2e+3o", "0e+1o+2e"),
}
ROUNDS = {"small": 7, "large": 3}
LIMIT = 1e-5  # relative, float32 against mace-torch in float64


def _peer(problem: str, dtype):
    import torch
    from e3nn import o3
    from mace.modules.symmetric_contraction import SymmetricContraction

    torch.set_default_dtype(dtype)
    torch.manual_seed(0)
    irreps = [
        "+".join(f"{CHANNELS}x{each}" for each in side.split("+")) for side in PROBLEMS[problem]
    ]
    module = SymmetricContraction(*map(o3.Irreps, irreps), CORRELATION, num_elements=2)
    torch.set_default_dtype(torch.float32)
    return module


def _signs(module, spec):
    """Of each path's polynomial against ours: its e3nn has another convention of 3j symbols."""
    import numpy as np
    import torch

    from scitoolkit.ops.symmetric_contraction.coupling import basis, monomials

    found = []
    for position, (out, order, count) in enumerate(spec.blocks):
        contraction = module.contractions[position // spec.correlation]
        tensor = contraction.U_tensors(order).numpy().reshape(2 * out[0] + 1, -1, count)
        ours = basis(spec.irreps_in, out, order)
        names = monomials(spec.dim_in, order)
        place = {each: i for i, each in enumerate(names)}
        index = [place[tuple(sorted(each))] for each in np.ndindex(*(spec.dim_in,) * order)]
        theirs = np.zeros_like(ours)
        np.add.at(theirs, (slice(None), index), tensor)
        found.append(np.where((ours * theirs).sum((0, 1)) < 0, -1.0, 1.0))
    return torch.from_numpy(np.concatenate(found))[:, None]


def _problem(problem: str):
    import torch

    from scitoolkit.ops.symmetric_contraction import ContractionSpec, symmetric_contraction

    spec = ContractionSpec.build(*PROBLEMS[problem], CORRELATION)
    exact, module = _peer(problem, torch.float64), _peer(problem, torch.float32)
    module.load_state_dict(exact.state_dict())
    signs = _signs(exact, spec)
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(NODES, CHANNELS, spec.dim_in, generator=generator)
    species = torch.randint(0, 2, (NODES,), generator=generator)
    one_hot = torch.eye(2)[species]

    def parameters(peer):
        found = []
        for each in peer.contractions:
            found += [*reversed(each.weights), each.weights_max]
        return found

    weight = torch.cat([each.detach() for each in parameters(exact)], dim=1) * signs
    own = [features.transpose(1, 2).contiguous(), weight.float().contiguous()]
    own = [each.requires_grad_() for each in own]

    def ours():
        return symmetric_contraction(spec, *own, species, backend="cpu"), own

    def theirs(peer, dtype):
        x = features.to(dtype).requires_grad_()
        return peer(x, one_hot.to(dtype)), [x, *parameters(peer)]

    contestants = {"ours": ours, "mace": lambda: theirs(module, torch.float32)}
    return contestants, lambda: theirs(exact, torch.float64), signs, spec


def _forward(run):
    import torch

    with torch.no_grad():
        return run()


def _backward(run):
    import torch

    out, inputs = run()
    return torch.autograd.grad(out.square().sum(), inputs)


def _double(run):
    """Operations of a force loss: a differentiable gradient, and the gradient of its square."""
    import torch

    out, inputs = run()
    (force,) = torch.autograd.grad(out.square().sum(), inputs[:1], create_graph=True)
    return torch.autograd.grad(force.square().sum(), inputs)


WORK = {"forward": _forward, "backward": _backward, "double": _double}


def _error(ours, exact, signs) -> float:
    """Largest relative error of the gradients of features and weights against float64."""
    import torch

    worst = 0.0
    for work in (_backward, _double):
        got, want = work(ours), work(exact)
        pairs = [
            (got[0].transpose(1, 2), want[0]),
            (got[1] * signs, torch.cat(want[1:], dim=1)),
        ]
        worst = max(worst, *(float((a - b).abs().max() / b.abs().max()) for a, b in pairs))
    return worst


def _in_this_interpreter() -> dict:
    import torch
    from _measure import alternate, medians

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    figures: dict = {}
    for name in PROBLEMS:
        contestants, exact, signs, _ = _problem(name)
        error = _error(contestants["ours"], exact, signs)
        if not error <= LIMIT:
            raise SystemExit(f"symmetric contraction {name}: error {error:.1e} above {LIMIT:.0e}")
        figures[name] = {"error": error}
        for kind, work in WORK.items():
            calls = {each: (lambda w=work, r=run: w(r)) for each, run in contestants.items()}
            alternate(calls, 1)
            seconds = medians(alternate(calls, ROUNDS[name]))
            figures[name][kind] = {
                **{f"{each}_ms": 1e3 * value for each, value in seconds.items()},
                "speedup": seconds["mace"] / seconds["ours"],
            }
    return figures


def measure() -> dict:
    """Return the smallest speed-up over mace-torch and the times behind it; {} without the peer."""
    if not PEER.exists():
        print("no .venv-peers/mace: make peers", file=sys.stderr)
        return {}
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{BENCHMARKS}",
        "OMP_NUM_THREADS": "1",
        "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1",
    }
    done = subprocess.run(
        [str(PEER), __file__], env=environment, stdout=subprocess.PIPE, check=True
    )
    problems = json.loads(done.stdout.splitlines()[-1])
    speedups = [each[kind]["speedup"] for each in problems.values() for kind in WORK]
    return {"symmetric_contraction_speedup": min(speedups), "symmetric_contraction": problems}


if __name__ == "__main__":
    print(json.dumps(_in_this_interpreter()))

"""Worker in mace-torch's environment: a random MACE model for scitoolkit and for symmetrix.

`python _symmetrix_model.py SOURCE FOLDER`: SOURCE is a clone of symmetrix, whose extraction script
writes FOLDER/symmetrix.json; `convert_mace` writes FOLDER/mace.pt. The model has the size of the
other comparisons, and a first block without residual, the only type that symmetrix evaluates.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import torch

CONVERT = Path(__file__).parents[2] / "scitoolkit" / "potentials" / "peers" / "convert_mace.py"
POINTS = 1024  # of symmetrix' splines, 4 times its default, so that their error is below the limit


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build():
    from e3nn import o3
    from mace import modules

    blocks = modules.interaction_classes
    return modules.ScaleShiftMACE(
        r_max=5.0,
        num_bessel=8,
        num_polynomial_cutoff=5,
        max_ell=3,
        num_interactions=2,
        interaction_cls_first=blocks["RealAgnosticInteractionBlock"],
        interaction_cls=blocks["RealAgnosticResidualInteractionBlock"],
        num_elements=2,
        hidden_irreps=o3.Irreps("64x0e + 64x1o"),
        MLP_irreps=o3.Irreps("16x0e"),
        gate=torch.nn.functional.silu,
        atomic_energies=np.array([-3.0, -1.0]),
        avg_num_neighbors=52.0,
        atomic_numbers=[1, 8],
        correlation=3,
        radial_MLP=[64, 64, 64],
        atomic_inter_scale=1.0,
        atomic_inter_shift=0.0,
    )


def main(source: Path, folder: Path) -> None:
    warnings.filterwarnings("ignore")
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    file = folder / "random.model"
    torch.save(build(), file)
    load(CONVERT).convert(str(file), str(folder / "mace.pt"))
    extract = load(source / "symmetrix/source/symmetrix/extract_mace_data.py").extract_mace_data
    data = extract(file, None, num_spline_points=POINTS)
    (folder / "symmetrix.json").write_text(json.dumps(data))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

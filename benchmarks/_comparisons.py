"""Every quantity that a stored benchmark measured for scitoolkit and for something else.

A comparison names its measurements by regular expressions over the paths of the stored file
(`us_per_atom/192/plain`), so that a rival or a case added to a file takes part without an edit
here. The groups of an expression other than `rival` name the case; a rival belongs to the cases
that agree with all groups it has. A test fails when a figure of a headline's
benchmark is neither compared here nor listed there as one that nothing else was measured for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

LOSS = 0.01  # a rival is better when it is by more than this share, or 0.1 dB, or 0.1 points


@dataclass(frozen=True)
class Kind:
    """How two measurements are compared: a factor or a difference, and its words."""

    gain: Callable[[float, float], float]  # of (ours, rival's), larger is better
    better: str
    worse: str
    factor: bool = True
    pool: str = ""  # kinds of one pool share a headline; empty: only comparisons of this kind

    def text(self, gain: float) -> str:
        if not self.factor:
            return f"{gain:+.1f} {self.better}"
        if gain >= 1:
            return f"{_short(gain)} x {self.better}"
        return f"{_short(_inverse(gain))} x {self.worse}"

    def range(self, low: float, high: float) -> str:
        """Return the words for gains from `low` to `high`."""
        if self.factor and (low >= 1) != (high >= 1):
            return f"{self.text(low)} to {self.text(high)}"
        if self.factor and low >= 1:
            ends = [_short(low), _short(high)]
        elif self.factor:
            ends = [_short(_inverse(high)), _short(_inverse(low))]
        else:
            ends = [f"{low:+.1f}", f"{high:+.1f}"]
        words = self.better if low >= 1 or not self.factor else self.worse
        unit = " x " if self.factor else " "
        return f"{ends[0] if ends[0] == ends[1] else ' to '.join(ends)}{unit}{words}"

    def lost(self, gain: float) -> bool:
        return not gain >= (1 - LOSS if self.factor else -10 * LOSS)


def _short(factor: float) -> str:
    return f"{factor:.1f}" if factor < 9.95 else f"{factor:,.0f}"


def _inverse(gain: float) -> float:
    return 1 / gain if gain else math.inf


def _smaller(ours: float, rival: float) -> float:
    return rival / ours if ours else math.inf


TIME = Kind(_smaller, "faster", "slower", pool="speed")
RATE = Kind(lambda ours, rival: ours / rival, "faster", "slower", pool="speed")
ERROR = Kind(_smaller, "smaller error", "larger error")
SQUARED = Kind(lambda ours, rival: _smaller(1 - ours, 1 - rival), "smaller error", "larger error")
MEMORY = Kind(lambda ours, rival: ours / rival, "less memory", "more memory")
IDLE = Kind(lambda ours, rival: _smaller(1 - ours, 1 - rival), "less idle", "more idle")
COST = Kind(
    _smaller, "faster", "slower", pool="cost"
)  # of a variant of ours: not part of a headline
SIZE = Kind(_smaller, "smaller", "larger")
PSNR = Kind(lambda ours, rival: ours - rival, "dB PSNR", "dB PSNR", factor=False)
POINTS = Kind(lambda ours, rival: 100 * (rival - ours), "points", "points", factor=False)


@dataclass(frozen=True)
class Case:
    """One measurement of scitoolkit, and those of all rivals of the same case."""

    name: str
    ours: float
    rivals: Mapping[str, float]

    def strongest(self, kind: Kind) -> tuple[str, float]:
        """Return the rival with the smallest gain over it, and that gain."""
        gains = {name: kind.gain(self.ours, value) for name, value in self.rivals.items()}
        name = min(gains, key=lambda rival: gains[rival])
        return name, gains[name]


_Read = tuple[str, dict[str, str], float]  # path, groups of its expression, value


@dataclass(frozen=True)
class Comparison:
    """A quantity of one benchmark; `ours` and `rivals` are expressions over paths."""

    benchmark: str
    quantity: str
    kind: Kind
    value: str  # format of one measurement, with its unit
    ours: str
    rivals: tuple[str, ...] = ()
    constant: Mapping[str, float] = field(default_factory=dict)  # rivals by definition
    sign: float = 1.0
    names: Mapping[str, str] = field(default_factory=dict)  # of rivals and cases

    def read(self, figures: Mapping[str, Any]) -> tuple[list[Case], set[str]]:
        """Return the cases of stored figures, and the paths that they hold.

        Raises:
            ValueError: a measurement is not finite, or there is no case, or one without a rival.
        """
        ours: list[_Read] = []
        rivals: list[_Read] = []
        wanted = [(self.ours, ours), *((expression, rivals) for expression in self.rivals)]
        for path, value in leaves(figures):
            for expression, members in wanted:
                match = re.fullmatch(expression, path)
                if match:
                    if not math.isfinite(value):
                        raise ValueError(f"{self.benchmark}: {path} is {value}")
                    groups = {k: v for k, v in match.groupdict().items() if v is not None}
                    members.append((path, groups, self.sign * value))
                    break
        cases = []
        for path, groups, value in ours:
            beaten = dict(self.constant)
            for _, other, rival in rivals:
                shared = {k: v for k, v in other.items() if k != "rival"}
                if shared.items() <= groups.items():
                    beaten[self._name(other.get("rival", "rival"))] = rival
            if not beaten:
                raise ValueError(f"{self.benchmark}: nothing was measured beside {path}")
            cases.append(Case(", ".join(map(self._name, groups.values())), value, beaten))
        if not cases:
            raise ValueError(f"{self.benchmark}: no figure of {self.quantity} ({self.ours})")
        return cases, {path for path, *_ in (*ours, *rivals)}

    def _name(self, group: str) -> str:
        return self.names.get(group, group).replace("_", " ").strip()


def leaves(figures: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Yield the path and value of every number of a stored file, flags left out."""
    if isinstance(figures, Mapping):
        for key, value in figures.items():
            yield from leaves(value, f"{path}/{key}" if path else str(key))
    elif isinstance(figures, list):
        for index, value in enumerate(figures):
            yield from leaves(value, f"{path}/{index}")
    elif isinstance(figures, (int, float)) and not isinstance(figures, bool):
        yield path, float(figures)


_TENSOR = r"(?P<task>forward|backward|double)"
_VARIABLE = r"(?P<scaling>unweighted_)?(?P<variable>[a-z])"
_SCORE = r"(?P<score>r2_uniform|r2_variance_weighted)"

_UNCONVERTED = r"samples_per_second/(?P<rival>(?:.+_)?(?P<layout>contiguous|chunked|gzip)_w\d+)"

COMPARISONS = (
    Comparison(
        "potential_mace",
        "energy and forces, or a training step",
        TIME,
        "{:,.0f} ms",
        r"ours_(?P<task>.+)_ms_(?P<model>.+)",
        (r"(?P<rival>[^_]+)_(?P<task>.+)_ms_(?P<model>.+)",),
        names={"mace": "mace-torch", "small": "64x0e+64x1o", "large": "64x0e+64x1o+64x2e"},
    ),
    Comparison(
        "potential_deepmd",
        "energy and forces",
        TIME,
        "{:.0f} µs per atom",
        r"us_per_atom/(?P<atoms>\d+)/(?P<tables>[^_]+)",
        (r"us_per_atom/(?P<atoms>\d+)/(?P<rival>.+)_(?P<tables>[^_]+)",),
        names={"peer": "deepmd-kit", "192": "192 atoms", "1536": "1,536 atoms"},
    ),
    Comparison(
        "potential_deepmd",
        "a training step",
        TIME,
        "{:.3f} s",
        r"train_cpu_seconds_per_step",
        (r"(?P<rival>.+)_train_cpu_seconds_per_step",),
        names={"peer": "deepmd-kit"},
    ),
    Comparison(
        "potential_deepmd",
        "force RMSE after 500 steps",
        ERROR,
        "{:.3f} eV/Å",
        r"force_rmse_500",
        (r"(?P<rival>.+)_force_rmse_500",),
        names={"peer": "deepmd-kit"},
    ),
    Comparison(
        "potential_se_atten",
        "energy and forces",
        TIME,
        "{:.1f} ms per atom",
        r"ms_per_atom_(?P<layers>\d+_layers)",
        (r"(?P<rival>peer)_ms_per_atom_(?P<layers>\d+_layers)",),
        names={"peer": "deepmd-kit"},
    ),
    Comparison(
        "potential_baselines",
        "force RMSE after a short training",
        ERROR,
        "{:.0f} meV/Å",
        r"force_rmse/(?P<workflow>.+)/model",
        (r"force_rmse/(?P<workflow>.+)/(?P<rival>pair_potential|zero_force)",),
    ),
    Comparison(
        "potential_acac",
        "errors after equal CPU time",
        ERROR,
        "{:.1f} meV (/Å)",
        r"(?P<quantity>energy|force)_mev",
        (r"(?P<rival>peer)_(?P<quantity>energy|force)_rmse_mev(?:_per_angstrom)?",),
        names={"peer": "mace-torch"},
    ),
    Comparison(
        "potential_finetune",
        "force RMSE after fine-tuning",
        ERROR,
        "{:.0f} meV/Å",
        r"force_rmse_tuned",
        (r"force_rmse_(?P<rival>.+)",),
        names={"mace": "mace-torch", "scratch": "training from scratch"},
    ),
    Comparison(
        "tensor_product",
        "one product with gather and scatter",
        TIME,
        "{:.1f} ms",
        rf"problems/(?P<problem>.+)/{_TENSOR}/ours_ms",
        (rf"problems/(?P<problem>.+)/{_TENSOR}/(?P<rival>(?!floor).+)_ms",),
        names={"double": "second derivatives"},
    ),
    Comparison(
        "tensor_product",
        "symmetric contraction",
        TIME,
        "{:.1f} ms",
        rf"symmetric_contraction/(?P<model>.+)/{_TENSOR}/ours_ms",
        (rf"symmetric_contraction/(?P<model>.+)/{_TENSOR}/(?P<rival>.+)_ms",),
        names={"mace": "mace-torch", "double": "second derivatives"},
    ),
    Comparison(
        "tensor_product",
        "spherical harmonics",
        TIME,
        "{:.1f} ms",
        r"spherical_harmonics/ours_ms",
        (r"spherical_harmonics/(?P<rival>.+)_ms",),
    ),
    Comparison(
        "tensor_product",
        "radial network inside the product",
        COST,
        "{:.0f} ms",
        rf"fused_radial/{_TENSOR}/fused_ms",
        (rf"fused_radial/{_TENSOR}/(?P<rival>.+)_ms",),
        names={"stored": "weights stored for each edge"},
    ),
    Comparison(
        "graphs",
        "one epoch",
        TIME,
        "{:.2f} s",
        r"(?P<model>gat_|)epoch_seconds/ours",
        (r"(?P<model>gat_|)epoch_seconds/(?P<rival>.+)",),
        names={
            "csr": "torch-geometric (CSR)",
            "edge_index": "torch-geometric (edge_index)",
            "gat_": "GAT",
            "": "GCN",
        },
    ),
    Comparison(
        "graphs",
        "product with the adjacency matrix",
        RATE,
        "{:.1f} x the speed",
        r"spmm_speedup_(?P<width>\d+)",
        constant={"torch.sparse": 1.0},
        names={"16": "16 columns", "64": "64 columns", "128": "128 columns"},
    ),
    Comparison(
        "graphs",
        "edges cut by a partition of a mesh",
        SIZE,
        "{:.2%}",
        r"mesh_cuts/(?P<order>.+)/auto",
        (r"mesh_cuts/(?P<order>.+)/(?P<rival>.+)",),
        names={"metis": "METIS"},
    ),
    Comparison(
        "graphs",
        "edges cut by a partition of a random graph",
        SIZE,
        "{:.1%}",
        r"partition_cut",
        (r"partition_(?P<rival>random)_cut|partition_cut_of_(?P<method>blocks)",),
    ),
    Comparison(
        "graphs",
        "rollouts on meshes",
        ERROR,
        "{:.2f}",
        r"error_ratio_(?P<mesh>.+)",
        constant={"baseline": 1.0},
    ),
    Comparison(
        "loader",
        "shuffled samples from a slow file system",
        RATE,
        "{:.0f} samples/s",
        r"samples_per_second/(?P<layout>[a-z]+)_(?P<memory>\d\d)",
        (_UNCONVERTED, r"samples_per_second/(?P<rival>(?!.*(?:contiguous|chunked|gzip)_).+)"),
        names={
            "tensorstore_rows1": "tensorstore after conversion",
            "tensorstore_rows16": "tensorstore after conversion, 16 samples a chunk",
            "mosaic_mds_w2": "MosaicML Streaming after conversion",
            "25": "a quarter in memory",
            "10": "a tenth in memory",
        },
    ),
    Comparison(
        "loader",
        "first epoch, contiguous file",
        RATE,
        "{:.1f} x the speed",
        r"speedup_contiguous_first_epoch_(?P<workers>w\d)",
        constant={"DataLoader": 1.0},
        names={"w0": "without workers", "w2": "2 workers"},
    ),
    Comparison(
        "emulation_rb2d",
        "one step",
        ERROR,
        "{:.2f} of persistence",
        rf"one_step_over_persistence_{_VARIABLE}",
        (r"(?P<rival>linear)_over_persistence_(?P<variable>[a-z])",),
        constant={"persistence": 1.0},
        names={"linear": "linear extrapolation", "unweighted_": "equal weights"},
    ),
    Comparison(
        "emulation_rb2d",
        "rollouts",
        ERROR,
        "{:.2f} of persistence",
        rf"rollout(?P<steps>\d+)_over_persistence_{_VARIABLE}",
        constant={"persistence": 1.0},
        names={"8": "8 steps", "15": "15 steps", "unweighted_": "equal weights"},
    ),
    Comparison(
        "emulation_rb2d",
        "share of a step spent waiting for a slow file system",
        TIME,
        "{:.0%}",
        r"data_wait_share",
        (r"(?P<rival>dataloader)_wait_share",),
        names={"dataloader": "h5py and DataLoader"},
    ),
    Comparison(
        "superres_rb2d",
        "R²",
        SQUARED,
        "R² {:.3f}",
        r"r2_(?P<variable>[a-z])",
        (r"r2_(?P<rival>(?!refined)[^/]+)/(?P<variable>[a-z])",),
        names={"trilinear": "multilinear"},
    ),
    Comparison(
        "superres_rb2d",
        "R² with the spectrum of a third flow",
        SQUARED,
        "R² {:.3f}",
        r"r2_refined/(?P<variable>[a-z])",
        (r"r2_(?P<rival>(?!refined)[^/]+)/(?P<variable>[a-z])",),
        names={"trilinear": "multilinear"},
    ),
    Comparison(
        "superres_rb2d",
        "mean absolute error",
        ERROR,
        "{:.4f}",
        r"scores/nmae_(?P<variable>[a-z])",
        (r"scores/nmae_(?P<variable>[a-z])_(?P<rival>.+)",),
    ),
    Comparison(
        "superres_rb2d",
        "statistics of turbulence",
        ERROR,
        "{:.1%}",
        r"scores/(?P<quantity>.+_error)",
        (r"scores/(?P<quantity>.+_error)_(?P<rival>.+)",),
    ),
    Comparison(
        "superres_rb2d",
        "spectrum of all waves",
        ERROR,
        "{:.1f}",
        r"plain/spectrum_error|spectrum_error_all_waves",
        (r"(?P<rival>trilinear|cubic)/spectrum_error",),
    ),
    Comparison(
        "compression",
        "PSNR at equal bytes, with an enhancer",
        PSNR,
        "{:.1f} dB",
        r"fields/(?P<field>.+)/(?P<enhancer>.+)/psnr",
        (r"fields/(?P<field>.+)/(?P<enhancer>.+)/(?P<rival>.+)_psnr",),
        names={"sperr": "SPERR", "sz3": "SZ3", "zfp": "ZFP", "linear": "linear enhancer"},
    ),
    Comparison(
        "compression",
        "PSNR at equal bytes, chosen by `auto`",
        PSNR,
        "{:+.1f} dB",
        r"auto_loss_db/(?P<field>.+)",
        constant={"the best of SZ3, SPERR and ZFP": 0.0},
        sign=-1.0,
    ),
    Comparison(
        "compression",
        "speed with an enhancer",
        RATE,
        "{:.0f} MB/s",
        r"(?:(?P<codec>network|dyadic|whole)_)?(?P<task>encode|decode)_mb_s",
        (r"(?P<rival>(?!network|dyadic|whole).+)_(?P<task>encode|decode)_mb_s",),
        names={"sz3": "SZ3"},
    ),
    Comparison(
        "compression_speed",
        "speed",
        RATE,
        "{:.0f} MB/s",
        r"(?P<objective>size|speed)_mbps_(?P<direction>in|out)",
        (r"(?P<rival>.+)_mbps_(?P<direction>in|out)",),
        names={"sz3": "SZ3", "in": "compress", "out": "decompress"},
    ),
    Comparison(
        "compression_speed",
        "bytes",
        SIZE,
        "{:,.0f}",
        r"(?P<objective>size|speed)_bytes",
        (r"(?P<rival>.+)_bytes",),
        names={"sz3": "SZ3"},
    ),
    Comparison(
        "compression_size",
        "bytes within a bound",
        SIZE,
        "{:,.0f}",
        r"(?:shipped|fresh|unordered)/(?P<field>.+)/bytes",
        (r"(?:shipped|fresh|unordered)/(?P<field>.+)/peers/(?P<rival>.+)",),
        names={"sperr": "SPERR", "sz3": "SZ3", "zfp": "ZFP"},
    ),
    Comparison(
        "compression_qoi",
        "bytes within a bound on a quantity",
        SIZE,
        "{:,.0f}",
        r"(?P<field>.+)/bytes",
        (r"(?P<field>.+)/(?P<rival>safeguards.*)",),
        names={"safeguards_over_sz3": "compression-safeguards over SZ3"},
    ),
    Comparison(
        "forecast_families",
        "RMSE over 8 leads",
        ERROR,
        "{:.4f}",
        r"rmse/(?P<series>.+)",
        (
            r"table/(?P<series>[^/]+)/(?P<rival>(?!surrogate).+)",
            r"peers/(?P<series>[^/]+)/(?P<rival>.+)",
            r"(?P<series>[^/_]+)_(?P<rival>lstm)_rmse",
        ),
        names={
            "ks": "Kuramoto-Sivashinsky",
            "sc20": "OISST",
            "ersst": "ERSSTv5",
            "lorenz63": "Lorenz-63",
            "lorenz96": "Lorenz-96",
            "lorenz96_noise": "Lorenz-96 with noise",
        },
    ),
    Comparison(
        "forecast_sc20",
        "R² of POD coefficients",
        SQUARED,
        "R² {:.4f}",
        rf"test_{_SCORE}",
        (rf"baselines/(?P<rival>.+)/{_SCORE}",),
    ),
    Comparison(
        "forecast_sc20",
        "RMSE of POD coefficients",
        ERROR,
        "{:.4f} °C",
        r"rmse_celsius",
        (r"baselines/(?P<rival>.+)/rmse",),
    ),
    Comparison(
        "search_sst",
        "R² of the searched forecast",
        SQUARED,
        "R² {:.4f}",
        r"test_r2_uniform",
        (r"(?:baselines|hand_made)/(?P<rival>.+)",),
    ),
    Comparison(
        "search_sst",
        "validation R² at equal CPU time",
        SQUARED,
        "R² {:.4f}",
        r"strategies_at_equal_cpu/evolution/mean",
        (r"strategies_at_equal_cpu/(?P<rival>.+)/mean",),
    ),
    Comparison(
        "search_quality",
        "median regret",
        ERROR,
        "{:.4f}",
        r"(?P<seeds>ours_on_unused_seeds/)?(?P<function>hartmann6|ackley5|mixed7)(?P<workers>_four_workers)?",
        (r"peers/(?P<rival>.+)/(?P<function>.+)",),
        names={
            "ours_on_unused_seeds/": "unused seeds",
            "hartmann6": "Hartmann6",
            "ackley5": "Ackley5",
            "optuna gp": "Optuna's GP",
            "optuna tpe": "Optuna's TPE",
            "optuna cma": "Optuna's CMA-ES",
            "deephyper cbo, 4 seeds": "DeepHyper's CBO",
        },
    ),
    Comparison(
        "search_overhead",
        "idle workers",
        IDLE,
        "{:.1%} busy",
        r"(?P<strategy>evolution|random)/busy_share",
        (r"deephyper/(?P<rival>.+)/busy_share",),
        names={
            "evolution": "evolution",
            "random": "random",
            "cbo_default": "CBO",
        },
    ),
    Comparison(
        "nas",
        "error above the best network, third quartile",
        POINTS,
        "{:.1%}",
        r"q75_excess_ours",
        (r"q75_excess_(?P<rival>.+)",),
    ),
    Comparison(
        "nas",
        "test error of the searched network",
        ERROR,
        "{:.3f}",
        r"tried/(?P<series>.+)/searched",
        (r"tried/(?P<series>.+)/(?P<rival>closed_form|hand_made)",),
        names={"closed_form": "the best closed form", "hand_made": "a hand-made LSTM"},
    ),
    Comparison(
        "field_models",
        "rollout of the emulators",
        ERROR,
        "{:.2f}",
        r"(?P<data>[^/]+)/(?P<model>(?!persistence)[^/]+)/rollout",
        (r"(?P<data>[^/]+)/(?P<rival>persistence)/rollout",),
    ),
    Comparison(
        "superres_prediction",
        "points",
        RATE,
        "{:,.0f} points/s",
        r"points_per_second/(?P<images>one_image|shipped)",
        (r"points_per_second/(?P<rival>.+)",),
        names={"shipped": "averaged over 4 reflections", "original": "MeshfreeFlowNet"},
    ),
    Comparison(
        "pde_derivatives",
        "training step under equations",
        TIME,
        "{:.2f} s",
        r"seconds_per_step/ours",
        (r"seconds_per_step/(?P<rival>(?!none).+)",),
    ),
    Comparison(
        "campaign",
        "batches of a campaign",
        RATE,
        "{:.0f} samples/s",
        r"well_samples_per_second/(?P<size>.+)/ours",
        (r"well_samples_per_second/(?P<size>.+)/(?P<rival>.+)",),
        names={"well": "WellDataset and DataLoader"},
    ),
    Comparison(
        "vlasov",
        "one degree of freedom and stage",
        TIME,
        "{:.2f} ns",
        r"ns_per_dof",
        (r"ns_per_dof_(?P<rival>numpy|numba)",),
    ),
    Comparison(
        "deploy_latency",
        "perceptron of 64 samples, emulator",
        TIME,
        "{:.1f}",
        r"(?P<model>mlp_batch64|emulator)_(?P<unit>us|ms)",
        (r"(?P<model>mlp_batch64|emulator)_(?P<unit>us|ms)_(?P<rival>.+)",),
    ),
    Comparison(
        "deploy_pool",
        "request to one of two hundred surrogates",
        TIME,
        "{:.2f} ms",
        r"ms_per_request_pool",
        (r"ms_per_request_(?P<rival>.+)",),
        names={"plain": "LRU cache over torch.load", "mapped": "mapped torch.load"},
    ),
    Comparison(
        "deploy_pool",
        "99th percentile of a hit",
        TIME,
        "{:.2f}",
        r"pool_p99_ratio",
        (r"(?P<rival>resident)_p99_ratio",),
        names={"resident": "a resident call"},
    ),
    Comparison(
        "trainer_overhead",
        "overhead of a training step",
        TIME,
        "{:.0f} µs",
        r"overhead_us_per_step",
        (r"(?P<rival>.+)_overhead_us_per_step",),
    ),
    Comparison(
        "exchange_speed",
        "data-parallel step",
        TIME,
        "{:.0f} ms",
        r"milliseconds/(?P<processes>\d+)/(?P<exchange>full|bf16)",
        (r"milliseconds/(?P<processes>\d+)/(?P<rival>ddp.*)",),
        names={"ddp": "DDP", "ddp_views": "DDP with gradients as bucket views"},
    ),
    Comparison(
        "comet",
        "activation memory",
        MEMORY,
        "{:.1f} x less",
        r"activation_memory_ratio",
        (r"(?:quantised/)?(?P<rival>checkpointing|bits\d)/activation_memory_ratio",),
        names={"bits2": "ActNN with 2 bits", "bits4": "ActNN with 4 bits"},
    ),
    Comparison(
        "comet",
        "gradient error under compressed activations",
        ERROR,
        "{:.4f}",
        r"gradient_error",
        (r"quantised/(?P<rival>.+)/gradient_error",),
        names={"bits2": "ActNN with 2 bits", "bits4": "ActNN with 4 bits"},
    ),
    Comparison(
        "pod_streaming",
        "POD of a file",
        TIME,
        "{:.1f} s",
        r"cpu_seconds",
        (r"(?P<rival>numpy)_cpu_seconds",),
        names={"numpy": "numpy's full SVD"},
    ),
    Comparison(
        "potential_lammps",
        "a step of MACE in LAMMPS",
        TIME,
        "{:.0f} µs per atom",
        r"symmetrix_case_float(?P<bits>\d\d)_us",
        (r"symmetrix_case_(?P<rival>symmetrix)_us",),
        names={"32": "float32", "64": "float64"},
    ),
    Comparison(
        "potential_lammps",
        "a step of se_e2_a in LAMMPS",
        TIME,
        "{:.0f} µs per atom",
        r"se_e2_a_lammps_us",
        (r"(?P<rival>deepmd)_lammps_us",),
        names={"deepmd": "deepmd-kit"},
    ),
)

# Figures that nothing else was measured for: settings, agreement with the peer, sums of compared
# cases, and parts of our own work. As expressions over paths, for the benchmarks of README.
_EVERYWHERE = r"(machine/)?(cores|load|threads)|wall_seconds|.*speedup.*|(relative_)?error(_.+)?"
UNCOMPARED = {
    "potential_mace": r"atoms|edges|parameters_.+|relative_error_.+|us_per_atom_.+",
    "potential_deepmd": r"agreement|table_error|us_per_atom_\d+|memory_kib_per_atom_\d+",
    "tensor_product": r"problems/[^/]+/(errors/.+|edges|graph_ms|floor_share|thread_scaling_2|"
    r"compile_seconds.+|[a-z]+/floor_ms)|compile_seconds.+|sgemm_gflops|copy_gb_s|floor_share.+|"
    r"thread_scaling_2|symmetric_contraction/[^/]+/error|spherical_harmonics/(edges|error|degrees.*)|"
    r"fused_radial/(difference|.+_mib)",
    "graphs": r"(raw_crashes|silent_wrong|supported_share|models_.+|proof_.+|bytes_formula_error)|"
    r"(equality|partitions|process_seconds|training_memory)/.+|equality_max.+|grids_compared|"
    r"(mesh|rmat)_words_share|nnz|nnz_imbalance|nodes|spmm_(ms|floor_ratio).*|cora_.+|"
    r"partition_(cpu_seconds|peak_mib|read_ratio|written_ratio)|two_.+_scaling|"
    r"mesh_cut_over_metis|gat_gradients_max_relative|rollout_error_ratio|training_peak_over_share",
    "loader": r"amplification_.+|chunk_reads_.+|(chunked_)?imbalance_.+|cold_disk_ratio|"
    r"l(oads|ru)_.+|plan(ned)?_.+|rss_over_.+",
    "emulation_rb2d": r".+_over_persistence_max|v?rmse_[a-z]|rollout_steps(_better)?|slow_.+|"
    r"steps_better_than_.+|test_samples|train_cpu_seconds",
    # scores/r2_* and the errors of cubic, plain and trilinear repeat figures that are compared
    "superres_rb2d": r"(cubic|plain|trilinear)/.+|(dissipation|kinetic_energy)_error|r2_min|"
    r"scores/(r2|residual)_.+|spectrum_decades_refined|train_.+",
    "compression": r"auto_loss_db_max|bound_violations|corruptions_.+|(gain_db|weight_overhead)_.+|"
    r"fields/[^/]+/[^/]+/(bytes|encode_cpu_seconds|enhancer_bytes|gain_.+|max_error.+|violations)",
    "forecast_families": r"cpu_seconds/.+|(ersst|waves|lorenz63|lorenz96|lorenz96_noise)_rmse|"
    r"ks_(valid_time|over_lstm|lstm_valid_time)|sc20_r2|table/[^/]+/surrogate|valid_time/.+",
    "search_quality": r"mixed7_q75|ms_per_proposal_120|over_best_peer.*|seeds|trials",
}


def unread(benchmark: str, figures: Mapping[str, Any]) -> set[str]:
    """Return the figures of a headline's benchmark that no comparison reads and no list names."""
    read = {
        path
        for comparison in COMPARISONS
        if comparison.benchmark == benchmark
        for path in comparison.read(figures)[1]
    }
    alone = re.compile(f"{_EVERYWHERE}|{UNCOMPARED[benchmark]}")
    return {path for path, _ in leaves(figures) if path not in read and not alone.fullmatch(path)}

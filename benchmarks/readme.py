"""Write the tables of measured results in README and docs/measured.md from `benchmarks/results/`.

`python benchmarks/run.py NAME --save` stores figures, and
`make -s demo > benchmarks/results/demo.txt` the output of the demo. This script only formats, so
that no number on these pages is typed by hand. A test fails if a page and the stored results
disagree.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).parent))
import _ablation_table
import _batch_table
import _containers_table
import _exchange_table
import _field_models_table
import _memory_table
import _offload_table
import _potentials_table
import _products_table
import _quantities_table
import _rank_table
import _readers_table
import _rivals_table
import _s_step_table
import _scaling_table
import _second_order_table
import _sizes_table
import _speed_table
import _wire_table
from _stored import ROOT, between

TABLES = (
    _products_table, _ablation_table, _sizes_table, _readers_table, _second_order_table,
    _rivals_table, _exchange_table, _s_step_table, _speed_table, _memory_table, _wire_table,
    _batch_table,
    _quantities_table, _containers_table, _scaling_table, _offload_table, _potentials_table,
    _rank_table, _field_models_table,
)  # fmt: skip
RESULTS = ROOT / "benchmarks" / "results"
BEGIN = "<!-- results: written by `python benchmarks/readme.py` -->"
END = "<!-- end of results -->"
DEMO_BEGIN = "<!-- demo: written by `python benchmarks/readme.py` -->"
DEMO_END = "<!-- end of demo -->"
MEASURED = ROOT / "docs" / "measured.md"

# README's table: benchmark -> (task, data, ours, best peer, ratio), at most ten rows; the braces
# take figures of the benchmark's JSON.
HEADLINES = {
    "potential_mace": (
        "MACE, energy and forces", "192 atoms of water, one thread",
        "{ours_energy_forces_ms_large:.0f} ms", "mace-torch {mace_energy_forces_ms_large:.0f} ms",
        "{energy_forces_speedup_large:.0f} x faster",
    ),
    "potential_deepmd": (
        "Deep Potential, energy and forces", "water, deepmd-kit's weights, one thread",
        "equal to {agreement:.0e}", "deepmd-kit 3.2", "{energy_forces_speedup:.1f} x faster",
    ),
    "tensor_product": (
        "equivariant tensor product, forward and backward", "7 published layers, 10,000 edges",
        "one generated kernel", "e3nn, cuEquivariance (the faster)",
        ">= {forward_backward_speedup_min:.0f} x faster",
    ),
    "graphs": (
        "full-graph GCN, one epoch", "131,072 nodes, 3.7 million nonzeros",
        "{epoch_seconds[ours]:.2f} s", "PyG with CSR {epoch_seconds[csr]:.2f} s",
        "{epoch_speedup_csr:.1f} x faster",
    ),
    "loader": (
        "shuffled batches from slow storage", "chunked HDF5, a quarter of it in memory",
        "{samples_per_second[chunked_25]:.0f} samples/s",
        "DataLoader {samples_per_second[chunked_w2]:.0f} samples/s",
        "{speedup_chunked_25:.0f} x faster",
    ),
    "emulation_rb2d": (
        "emulator of convection, one step", "Rayleigh-Bénard, Ra 10⁶, unseen flow",
        "{one_step_over_persistence_max:.2f} of persistence's error",
        "linear extrapolation {linear_over_persistence_max:.2f}", "worst variable",
    ),
    "superres_rb2d": (
        "super-resolution 4 x 8 x 8", "Rayleigh-Bénard, Ra 10⁶, unseen flow",
        "R² of u {r2_u:.3f}", "multilinear {r2_trilinear[u]:.3f}",
        "dissipation off by {dissipation_error:.0%}, not {trilinear[dissipation_error]:.0%}",
    ),
    "compression": (
        "compression at equal bytes", "turbulence 64³, 1 % of the range",
        "every point within the bound", "SZ3, SPERR, ZFP (the best)",
        "+{gain_db_network_min:.1f} dB",
    ),
    "forecast_sc20": (
        "forecast of 8 weeks", "NOAA OISST, 1,487 test weeks",
        "R² {test_r2_uniform:.3f}", "hand-made LSTM {baselines[lstm_manual][r2_uniform]:.3f}",
        "{fit_cpu_seconds:.1f} CPU-s of fitting",
    ),
    "search_overhead": (
        "architecture search, 32 workers", "trials of 2 s",
        "busy {busy_share:.3f} of the time", "DeepHyper {deephyper[evolution][busy_share]:.3f}",
        "{duplicates} trials repeated, not {deephyper[evolution][duplicates]}",
    ),
}  # fmt: skip

# docs/measured.md: benchmark -> (job, data, ours, peers).
ROWS = {
    "emulation_rb2d": (
        "Emulator of turbulent convection, one step of 0.25 and rollouts",
        "Rayleigh-Bénard at Ra 10⁶, 34 frames of one flow to learn from, 16 of another to test",
        "error over persistence's, worst variable: {one_step_over_persistence_max:.2f} after one "
        "step, {rollout8_over_persistence_max:.2f} after eight; ahead through "
        "{rollout_steps_better} steps; {train_cpu_seconds:.0f} CPU-s; waits "
        "{data_wait_share:.1%} of a step for data in a slow file system",
        "persistence 1; linear extrapolation {linear_over_persistence_max:.2f} after one step; "
        "h5py + DataLoader waits {dataloader_wait_share:.0%}",
    ),
    "emulation_uncertainty": (
        "90 % intervals of rollouts, leads of 1 to 16 steps",
        "Kuramoto-Sivashinsky, {trajectories[1]} trajectories to calibrate on, {trajectories[2]} "
        "others to test",
        "coverage {coverage90_min:.3f} to {coverage90_max:.3f} over all leads; CRPS at most "
        "{crps_over_mae_max:.2f} of the mean absolute error; {members} members, "
        "{train_cpu_seconds:.0f} CPU-s",
        "the members' spread as it is: coverage {coverage_of_the_spread_alone[0]:.2f} after one "
        "step",
    ),
    "superres_rb2d": (
        "Super-resolution of turbulent convection, 16 x 64 x 256 nodes from 4 x 8 x 32",
        "Rayleigh-Bénard at Ra 10⁶, 40 frames of one flow to learn from, 16 of another to test",
        "R² p {r2_p:.3f}, b {r2_b:.3f}, u {r2_u:.3f}, w {r2_w:.3f}; with the waves' power of a "
        "third flow kinetic energy off by {kinetic_energy_error:.1%}, dissipation by "
        "{dissipation_error:.1%}; {train_cpu_seconds:.0f} CPU-s",
        "multilinear {r2_trilinear[p]:.3f}, {r2_trilinear[b]:.3f}, {r2_trilinear[u]:.3f}, "
        "{r2_trilinear[w]:.3f}; {trilinear[kinetic_energy_error]:.0%}, "
        "{trilinear[dissipation_error]:.0%}",
    ),
    "superres_prediction": (
        "Prediction streamed to file, {frames} x 512 x 2048 nodes x 4 fields",
        "the shipped surrogate of convection, one thread",
        "{growth_mib:.0f} MiB of memory for {output_mib:.0f} MiB of output, equal to the direct "
        "query to {difference_from_query:g}; {points_per_second[one_image]:,.0f} points/s, "
        "{points_per_second[shipped]:,.0f} as a mean over 4 mirror images; cost per point at 3 "
        "sizes within {cost_per_point_max_over_min:.2f} x",
        "MeshfreeFlowNet's evaluation path {points_per_second[original]:.0f} points/s; its decoder "
        "by our query {points_per_second[imnet]:,.0f}, with the residuals "
        "{points_per_second[imnet_residuals]:,.0f}",
    ),
    "pde_derivatives": (
        "Training step under four equations with second derivatives",
        "MeshfreeFlowNet's decoder, 2 crops of 512 points, one thread",
        "{seconds_per_step[ours]:.2f} s, {cost_over_no_pde:.1f} x a step without equations; "
        "gradients equal to {gradient_relative_error:.0e}; {memory_ratio:.1f} x less memory",
        "the published layer (25 autograd calls) {speedup_vs_original:.1f} x slower, "
        "torch.func.jvp nested {speedup_vs_jvp:.1f} x",
    ),
    "compression": (
        "Compression, every point within 1 % of the range",
        "turbulence 64³ (real)",
        "{gain_db_linear_min:.1f} dB (linear enhancer) and {gain_db_network_min:.1f} dB (networks) "
        "above the best plain codec at equal total bytes, worst field; "
        "{bound_violations} of all points beyond the bound; "
        "{corruptions_silent} of {corruptions_tried} damaged streams read silently",
        "SZ3 (gain over it {gain_db_linear_over_sz3_min:.1f} dB), SPERR, ZFP",
    ),
    "comet": (
        "Training with compressed activations: peak memory over that between steps",
        "Rayleigh-Bénard 256 x 64, residual network of 50 convolutions, one thread",
        "{activation_memory_ratio:.1f} x less (nothing saved at all: {nothing_saved_ratio:.1f} x) "
        "at gradient error {gradient_error:.4f}, step {step_time_ratio:.2f} x as long, accuracy "
        "{accuracy_drop:.2f} points lower after 120 steps (3 seeds); "
        "3-D U-Net {others[unet3d][activation_memory_ratio]:.1f} x of at most "
        "{others[unet3d][nothing_saved_ratio]:.1f} x; ResNet-56 with batch normalisation "
        "{others[resnet56_batchnorm][activation_memory_ratio]:.1f} x at "
        "{others[resnet56_batchnorm][gradient_error]:.3f}",
        "activation checkpointing {checkpointing[activation_memory_ratio]:.1f} x, step "
        "{checkpointing[step_time_ratio]:.2f} x; ActNN's quantisation, 2 bits "
        "{quantised[bits2][activation_memory_ratio]:.1f} x at gradient error "
        "{quantised[bits2][gradient_error]:.3f}, 4 bits "
        "{quantised[bits4][activation_memory_ratio]:.1f} x at "
        "{quantised[bits4][gradient_error]:.4f}",
    ),
    "forecast_sc20": (
        "POD forecast, 8 weeks -> 8 weeks",
        "POD coefficients of NOAA OISST weekly (427 train, 1487 test)",
        "test R² {test_r2_uniform:.3f} (variance-weighted {test_r2_variance_weighted:.4f}), "
        "{fit_cpu_seconds:.1f} CPU-s of fitting, 90 % intervals cover "
        "{coverage90_min:.3f} to {coverage90_max:.3f}",
        "R²: hand-made LSTM {baselines[lstm_manual][r2_uniform]:.3f}, "
        "RKHS {baselines[rkhs_prediction][r2_uniform]:.3f}, "
        "ridge {baselines[ridge][r2_uniform]:.3f}, "
        "damped anomaly {baselines[climatology_damped_anomaly][r2_uniform]:.3f}",
    ),
    "forecast_families": (
        "Forecasts by the shipped `auto`, 8 steps in and out, closed forms only",
        "series with known floors (Lorenz-63 0.020, waves 0.200, Lorenz-96 under noise 0.10)",
        "RMSE: Lorenz-63 {lorenz63_rmse:.4f}, Lorenz-96 {lorenz96_rmse:.4f}, under noise "
        "{lorenz96_noise_rmse:.3f}, waves {waves_rmse:.4f}, ERSSTv5 {ersst_rmse:.3f} degC; OISST "
        "test R² {sc20_r2:.3f}; Kuramoto-Sivashinsky valid for {ks_valid_time:.1f} Lyapunov times",
        "LSTM on Kuramoto-Sivashinsky: {ks_lstm_valid_time:.2f} Lyapunov times; Lorenz-63: opinf "
        "{peers[lorenz63][opinf cubic]:.4f}, pySINDy {peers[lorenz63][pySINDy map, cubic]:.4f}, "
        "PyDMD {peers[lorenz63][PyDMD, delays]:.2f}",
    ),
    "forecast_intervals": (
        "90 % intervals that `predict` writes",
        "the same series and two more, every lead",
        "cover {coverage90_min:.3f} to {coverage90_max:.3f}; Lorenz-63 CRPS {lorenz63_crps:.4f}",
        "nominal 0.9",
    ),
    "search_quality": (
        "Search, best of {trials} trials, optimum moved by seed, {seeds} seeds",
        "Hartmann6, Ackley5, a training-like loss of 7 variables",
        "median regret {hartmann6:.4f}, {ackley5:.1f}, {mixed7:.4f} (four workers "
        "{mixed7_four_workers:.4f}); on seeds that chose no setting "
        "{ours_on_unused_seeds[hartmann6]:.4f}, {ours_on_unused_seeds[ackley5]:.1f}, "
        "{ours_on_unused_seeds[mixed7]:.4f}; {ms_per_proposal_120:.0f} ms a proposal",
        "Optuna: GP {peers[optuna gp][hartmann6]:.4f}, {peers[optuna gp][ackley5]:.1f}, "
        "{peers[optuna gp][mixed7]:.4f}; TPE {peers[optuna tpe][hartmann6]:.2f}, "
        "{peers[optuna tpe][ackley5]:.1f}, {peers[optuna tpe][mixed7]:.2f}; CMA-ES "
        "{peers[optuna cma][hartmann6]:.2f}, {peers[optuna cma][ackley5]:.1f}, "
        "{peers[optuna cma][mixed7]:.2f}; DeepHyper's CBO (4 seeds) "
        "{peers[deephyper cbo, 4 seeds][hartmann6]:.2f}, "
        "{peers[deephyper cbo, 4 seeds][ackley5]:.1f}, {peers[deephyper cbo, 4 seeds][mixed7]:.2f}",
    ),
    "nas": (
        "Architecture search on a table of {table_size} trained networks",
        "ring of Mackey-Glass equations; 12 seeds, 60 trials",
        "third quartile {q75_excess_ours:.1%} above the best; one-shot {one_shot_excess:.1%} at "
        "{one_shot_cost:.2f} of the cost; on test against the best closed form and a hand-made "
        "LSTM {pays_margin_in_seed_noise:+.1f} seed deviations ({pays_where})",
        "random search {q75_excess_random:.1%}, evolution {q75_excess_evolution:.1%}",
    ),
    "pod_streaming": (
        "POD of a file larger than memory",
        "338 MB, 1,914 x 44,219 float32",
        "{speedup_vs_numpy_svd:.1f} x faster, {peak_rss_growth_mib:.0f} MiB of memory "
        "({peak_rss_growth_10x_mib:.0f} MiB at 10 x the snapshots), "
        "singular values to {sigma_relative_error:.0e}",
        "numpy's full SVD",
    ),
    "tensor_product": (
        "Equivariant tensor product with gather and scatter",
        "7 problems of NequIP, MACE and SevenNet, 10,000 edges, one CPU thread",
        "smallest speed-up {forward_speedup_min:.0f} x forward, "
        "{forward_backward_speedup_min:.0f} x with backward, "
        "{double_backward_speedup_min:.0f} x with double backward",
        "the faster of e3nn and cuEquivariance on CPU",
    ),
    "graphs": (
        "Full-graph GCN 128-64-16, one epoch, one thread",
        "R-MAT, 131,072 nodes, 3.7 million nonzeros; Cora",
        "{epoch_seconds[ours]:.2f} s, GAT (8 heads of 8) {gat_epoch_seconds[ours]:.2f} s; "
        "Cora {cora_accuracy_mean:.3f} ± {cora_accuracy_deviation:.3f}; equal on 8 ranks to "
        "{equality_max_relative:.0e}",
        "torch-geometric: edge_index {epoch_seconds[edge_index]:.1f} s, "
        "CSR {epoch_seconds[csr]:.2f} s, GAT {gat_epoch_seconds[torch-geometric]:.1f} s",
    ),
    "campaign": (
        "Campaigns of many files",
        "100,000 one-sample files; a Well file in a slow file system; convection at 4 Rayleigh "
        "numbers",
        "{layouts_ok} of {layouts_tried} layouts; index of 100,000 files "
        "{index_seconds_100k:.1f} s, later starts {restart_seconds_100k:.2f} s, "
        "{descriptors_max} descriptors; statistics read {statistics_bytes_ratio:.1f} x the "
        "training part once; batches {speedup_well_dataset_by_size[small]:.1f} x the peer's at "
        "0.26 MB a sample, {speedup_well_dataset_by_size[large]:.1f} x at 8 MB; error of an "
        "emulator of eight simulations {campaign_gain:.2f} of one's, worst test",
        "WellDataset and DataLoader, 2 workers: 1",
    ),
    "loader": (
        "Shuffled batches from a slow file system (1 ms a request, 200 MB/s)",
        "256 MiB of HDF5, 16 samples of 256 KiB a chunk, a quarter of it in memory",
        "{samples_per_second[chunked_25]:.0f} samples/s ({speedup_chunked_25:.0f} x DataLoader), "
        "gzip {samples_per_second[gzip_25]:.0f} ({speedup_gzip_25:.1f} x); "
        "{amplification_later_25:.2f} bytes read a byte used; file loads "
        "{loads_over_bound_max:.3f} x the lower bound",
        "DataLoader with 2 workers {samples_per_second[chunked_w2]:.0f}, gzip "
        "{samples_per_second[gzip_w2]:.0f}, "
        "{amplification_dataloader:.0f} bytes a byte; StatefulDataLoader "
        "{samples_per_second[stateful_chunked_w2]:.0f}; after conversion: MosaicML Streaming "
        "{samples_per_second[mosaic_mds_w2]:.0f}, tensorstore with 16 samples a chunk "
        "{samples_per_second[tensorstore_rows16]:.0f}, with one "
        "{samples_per_second[tensorstore_rows1]:.0f}",
    ),
    "potential_deepmd": (
        "Deep Potential of water (se_e2_a, float64)",
        "192 and 1,536 atoms, deepmd-kit's weights, one thread",
        "energy + forces {energy_forces_speedup:.1f} x faster, with tables "
        "{compressed_speedup:.1f} x, a training step {train_speedup:.1f} x, "
        "{force_rmse_500:.3f} eV/Å after 500 steps; equal to {agreement:.0e}",
        "deepmd-kit 3.2 (TensorFlow CPU), {peer_force_rmse_500:.3f} eV/Å",
    ),
    "potential_se_atten": (
        "Deep Potential of water (se_atten, 2 attention layers, float64)",
        "192 atoms, 89 neighbours each, default sizes, one thread",
        "energy + forces {ms_per_atom_2_layers:.1f} ms an atom, in plain torch "
        "{reference_ms_per_atom_2_layers:.1f}; the matrix products alone at dgemm's rate "
        "{floor_ms_per_atom_2_layers:.1f}; equal to {agreement_2_layers:.0e}",
        "deepmd-kit 3.2 (TensorFlow CPU) {peer_ms_per_atom_2_layers:.1f} ms",
    ),
    "potential_mace": (
        "MACE, energy + forces; training step (one thread, float32)",
        "192 atoms of water, 2 layers, correlation 3, equal weights",
        "64x0e+64x1o: {ours_energy_forces_ms_small:.0f} ms; {ours_train_ms_small:.0f} ms. "
        "With 64x2e: {ours_energy_forces_ms_large:.0f} ms; {ours_train_ms_large:.0f} ms. "
        "Equal to {relative_error_large:.0e}",
        "mace-torch: {mace_energy_forces_ms_small:.0f} ms; {mace_train_ms_small:.0f} ms. "
        "{mace_energy_forces_ms_large:.0f} ms; {mace_train_ms_large:.0f} ms",
    ),
    "potential_acac": (
        "MACE of acetylacetone trained for {cpu_seconds:.0f} CPU-s, {parameters:,} parameters",
        "475 frames at 300 K, 650 to test; equal loss, batch and learning rate; Muon here, Adam "
        "there",
        "energy {energy_mev:.1f} meV, force {force_mev:.1f} meV/Å after {epochs:.0f} epochs",
        "mace-torch in the same CPU time: {peer_energy_rmse_mev:.1f} meV, "
        "{peer_force_rmse_mev_per_angstrom:.1f} meV/Å after {peer_epochs:.0f} epochs",
    ),
    "potential_nve": (
        "Energy drift of `acac_mace` at constant energy (float64)",
        "{picoseconds:.0f} ps, steps of {step_fs} fs, {atoms} atoms",
        "{drift_mev_per_atom_per_ns:.2f} ± {uncertainty_mev_per_atom_per_ns:.2f} meV/atom/ns, "
        "{ms_per_step:.0f} ms a step",
        "–",
    ),
    "potential_finetune": (
        "Fine-tuning `acac_mace` on 50 frames of an unseen molecule (float32, one thread)",
        "methoxyethane at 400 K labelled by GFN2-xTB, 100 frames to test",
        "force {force_rmse_tuned:.0f} meV/Å after {steps} steps ({seconds_tuned:.0f} CPU-s), from "
        "scratch {force_rmse_scratch:.0f} in as many",
        "mace-torch, the same weights: {force_rmse_mace:.0f} meV/Å after {mace_steps} steps "
        "({seconds_mace:.0f} CPU-s), which ours reaches in {mace_time_ratio:.2f} of the time",
    ),
    "potential_memory": (
        "Memory of MACE in inference, neighbour list included (64x0e+64x1o)",
        "10,000 and 100,000 atoms, 52 neighbours, one thread",
        "{kb_per_atom_float32:.0f} KB an atom in float32, {kb_per_atom_float64:.0f} in float64; "
        "an atom of 100,000 takes {flatness:.2f} of the time of one of 216",
        "weights of all edges stored: {stored_us_float32:.0f} µs an atom, streamed "
        "{streamed_us_float32:.0f}",
    ),
    "compression_size": (
        "Bytes within a bound of 1 %, 0.1 % and 0.01 % of the range",
        "turbulence, cosmology, ocean (tuned on); convection, ocean (fresh); unordered lines",
        "median {size_median_shipped:.2f} and {size_median_fresh:.2f} (fresh) of the smallest "
        "peer, worst {size_worst_shipped:.2f} and {size_worst_fresh:.2f}; lines at most "
        "{size_1d_worst:.2f}",
        "the smallest of SZ3 (best of four settings), SPERR and ZFP: 1",
    ),
    "compression_qoi": (
        "Bytes within a bound on a quantity (speed, vorticity, gradient, flux, divergence)",
        "cosmology, turbulence, convection; {cases:,} random cases",
        "median {qoi_size_ratio:.2f}, worst {qoi_size_ratio_worst:.2f}; {qoi_violations} "
        "violations",
        "compression-safeguards over SZ3 at its best bound: 1",
    ),
    "compression_speed": (
        "MB/s at a bound of 0.1 % of the range, one core",
        "turbulence mirrored to 256³ (67 MB); 1 GB for memory and random access",
        "`--for size` {size_mbps_in:.0f} in, {size_mbps_out:.0f} out; `--for speed` "
        "{speed_mbps_in:.0f} in, {speed_mbps_out:.0f} out, at most {speed_size_over_sz3:.2f} of "
        "SZ3's bytes; 1 GB in {rss_1gb_mib:.0f} MiB; a chunk of 64³ in {random_access_ms:.1f} ms",
        "SZ3 {sz3_mbps_in:.0f} in, {sz3_mbps_out:.0f} out",
    ),
    "vlasov": (
        "Vlasov equation in 1X1V, modal DG of degree 2, a degree of freedom and stage",
        "64 x 256 cells, one thread",
        "{ns_per_dof:.2f} ns; Landau damping off by {landau_error:.0e}, two-stream growth by "
        "{two_stream_error:.1e}, mass by {mass_error:.0e}; order {order_p2:.2f}",
        "collocated numba {over_numba:.1f} x slower, NumPy by BLAS {over_numpy:.0f} x",
    ),
    "submatrix": (
        "Density matrix of tight-binding carbon by submatrices",
        "crystals of {orbitals[0]:,} to {orbitals[1]:,} orbitals",
        "energy to {energy_error:.0e}, forces to {force_error:.0e} of exact; error estimate within "
        "a factor {estimate_factor:.1f}; time linear within {linearity_error:.0%}; faster than "
        "dense above {crossover_orbitals:,.0f} orbitals",
        "sparse purification (scipy) {over_purification:.1f} x slower",
    ),
    "search_overhead": (
        "Architecture search, 32 workers",
        "2 s trials that sleep, 8,605,184 architectures",
        "workers busy {busy_share:.3f} of the time, {own_ms_per_trial:.2f} ms a trial, "
        "{duplicates} repeated",
        "DeepHyper 0.13: evolution busy {deephyper[evolution][busy_share]:.3f}, "
        "{deephyper[evolution][duplicates]} of {deephyper[evolution][trials]} repeated; "
        "default CBO busy {deephyper[cbo_default][busy_share]:.3f}",
    ),
    "search_resume": (
        "A search killed {kills} times (`kill -9`)",
        "{trials} trials, one worker",
        "{lost} lost, {repeated} repeated, history equal: {history_equal}",
        "–",
    ),
    "search_sst": (
        "Searched POD-LSTM, 8 weeks -> 8 weeks",
        "the same coefficients; architecture chosen by blocked validation",
        "test R² {test_r2_uniform:.3f} (seed spread {seed_spread:.4f})",
        "R²: best hand-made LSTM {best_hand_made_r2:.3f}, "
        "best baseline {best_baseline_r2:.3f} ({best_baseline})",
    ),
    "second_order": (
        "Fits of a few hundred parameters by Gauss-Newton",
        "forecast read-out, Poisson equation, potential of acetylacetone; float64, one thread",
        "Adam's best loss in {fits[forecast][time_ratio]:.2f}, {fits[poisson][time_ratio]:.2f} and "
        "{fits[potential][time_ratio]:.2f} of its time (10 units a layer); with 6 units it ends at "
        "{narrow_potential[gauss_newton_loss]:.1e} and never gets there",
        "Adam, the best of three rates: 1; with 6 units {narrow_potential[adam_loss]:.1e}",
    ),
    "exchange_speed": (
        "Data-parallel step, 48 MiB of gradients",
        "12 layers of 1,024, 128 samples a rank, gloo on one machine",
        "{step_over_ddp_2:.2f} of DDP's step on 2 processes, {step_over_ddp_4:.2f} on 4; 4 killed "
        "ranks resume bit for bit: {resume_equal}",
        "DistributedDataParallel: 1",
    ),
    "sharded_memory": (
        "Peak memory of a sharded training, times processes over one process",
        "{parameters_mib:.0f} MiB of parameters, AdamW, gloo on CPUs",
        "{peak_share_2:.2f} on 2 processes, {peak_share_4:.2f} on 4; built without memory "
        "{built_share:.2f}; 90 % pruned within {samo_bytes_error:.1%} of the formula",
        "split evenly: 1",
    ),
    "wire_bytes": (
        "Bytes of a data-parallel step, full exchange over ours",
        "two surrogates, 2 nodes of 2 processes, {seeds} seeds",
        "`sdp4bit` {bytes_ratio_sdp4bit:.2f} ({bytes_ratio_between_nodes:.2f} between nodes), "
        "`error_bounded` {bytes_ratio_error_bounded:.2f}, loss {loss_difference_percent:+.1f} %",
        "naive 4 bits: loss {naive_loss_difference_percent:+.1f} %",
    ),
    "large_batch": (
        "Loss at 4 and 16 times the batch with LAMB and LEGW, nothing tuned again",
        "three functions without noise, {epochs} epochs, {seeds} seeds",
        "{loss_difference_4x_percent:+.0f} % and {loss_difference_16x_percent:+.0f} %",
        "once the batch: 0",
    ),
    "potential_lammps": (
        "LAMMPS, a step of an atom, one rank",
        "{atoms} atoms of water; MACE and se_e2_a in float64",
        "MACE {mace_lammps_us:.0f} µs, {lammps_over_library:.2f} x the library alone; se_e2_a "
        "{se_e2_a_lammps_us:.0f} µs; ranks equal Python to {equality_max:.0e}",
        "symmetrix (serial, equal weights) {symmetrix_speedup_float64:.1f} x slower, "
        "{symmetrix_speedup_float32:.0f} x than ours in float32; deepmd-kit's LAMMPS "
        "{deepmd_lammps_speedup:.1f} x slower",
    ),
    "deploy_latency": (
        "A surrogate as one C file, one thread",
        "perceptron 60-128-128-60, called from C; the shipped emulator of convection",
        "{mlp_us:.2f} µs a call, {mlp_batch64_us:.1f} µs for 64 samples; emulator "
        "{emulator_ms:.1f} ms",
        "onnxruntime {mlp_batch64_us_onnxruntime:.1f} µs; {emulator_ms_onnxruntime:.1f} ms",
    ),
    "deploy_pool": (
        "Two hundred surrogates under a budget of bytes, CPU time of a request",
        "6 MiB each under 100 MiB, Zipf requests, two threads; load {load:.1f}",
        "{ms_per_request_pool:.2f} ms; 99th percentile of a hit {pool_p99_ratio:.2f} x the "
        "resident call; {lost} lost, {wrong} wrong of 10,000 with failures",
        "LRU over torch.load {ms_per_request_plain:.2f} ms, mapped and assigned "
        "{ms_per_request_mapped:.2f} ms",
    ),
    "deploy_bits": (
        "Layers in 8 and 4 bits as C, one thread",
        "n x n for n from 256 to 4,096; groups of 32 inputs in 4 bits",
        "one sample {bits_speedup_batch1_min:.2f} x faster than the best peer at equal bits at "
        "least; 32 samples {bits_over_int8_batch32:.2f} of torch's int8 time at most",
        "onnxruntime and torch: 1",
    ),
    "emulation_long": (
        "Rollouts of the shipped emulator of steady convection, {steps} steps",
        "Rayleigh-Bénard at Ra 10⁶, {starts} unseen seeds, the solver as the truth",
        "finite for {finite_steps_min} steps from every start; kinetic energy off by "
        "{energy_error:.1%}, Nusselt number by {nusselt_error:.1%}; spectra of b, u, w within a "
        "factor {spectrum_factor_99:.1f}; error over persistence's, worst variable: "
        "{one_step_over_persistence_max:.2f} after one step, {rollout8_over_persistence_max:.2f} "
        "after eight; cost over the solver's {cost_over_solver:.2f}",
        "persistence 1",
    ),
    "trainer_overhead": (
        "Trainer overhead a step",
        "2-layer MLP, batch 64, one thread",
        "{overhead_us_per_step:.0f} µs over a raw torch loop",
        "Fabric {fabric_overhead_us_per_step:.0f} µs, Accelerate "
        "{accelerate_overhead_us_per_step:.0f} µs, Lightning "
        "{lightning_overhead_us_per_step:.0f} µs",
    ),
}


def table(rows: Mapping[str, Sequence[str]], heads: Sequence[str], command: bool) -> str:
    """Return the rows of those benchmarks that have stored results."""
    heads = [*heads, "command"] if command else heads
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, cells in rows.items():
        path = RESULTS / f"{name}.json"
        if not path.exists():
            continue
        figures = json.loads(path.read_text(encoding="utf-8"))
        shown = [cell.format(**figures) for cell in cells]
        shown += [f"`python benchmarks/run.py {name}`"] if command else []
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines)


def demo() -> str:
    """Return the verdicts at the end of the demo's output."""
    path = RESULTS / "demo.txt"
    if not path.exists():
        return ""
    return "```text\n" + path.read_text(encoding="utf-8").strip().split("\n\n", 1)[-1] + "\n```"


def updated(readme: str) -> str:
    short = table(HEADLINES, ("task", "data", "scitoolkit", "best peer", ""), command=False)
    return between(between(readme, DEMO_BEGIN, DEMO_END, demo()), BEGIN, END, short)


def measured(page: str) -> str:
    heads = ("job", "data", "scitoolkit", "beside it, in the same run")
    return between(page, BEGIN, END, table(ROWS, heads, command=True))


def _rewritten(module: ModuleType, page: str) -> str:
    return between(page, module.BEGIN, module.END, module.table())


def main() -> int:
    changed = False
    for path, write in (
        (ROOT / "README.md", updated),
        (MEASURED, measured),
        *((module.PAGE, partial(_rewritten, module)) for module in TABLES),
    ):
        old = path.read_text(encoding="utf-8")
        new = write(old)
        changed |= old != new
        if "--check" not in sys.argv:
            path.write_text(new, encoding="utf-8")
    return int(changed) if "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())

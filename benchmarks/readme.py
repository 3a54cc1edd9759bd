"""Write the tables of measured results in README and docs/ from `benchmarks/results/`.

`python benchmarks/run.py NAME --save` stores figures, `make -s demo > benchmarks/results/demo.txt`
the output of the demo. This script only formats them: no number on these pages is typed by hand,
and a test fails when a page and the stored results disagree.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).parent))
from _headlines import HEADLINES, HEADS, LOST_HEADS, OLD, gains, lost_rows, pooled, row, winner
from _headlines import measured as measured_where
from _places import BENCHMARKS, RESULTS, ROOT
from _stored import between, stored

sys.path.insert(0, str(BENCHMARKS / "gpu"))  # a table has the figures of `gpu`
from page_tables import (
    ablation,
    baselines,
    batch,
    calendars,
    containers,
    exchange,
    field_models,
    gpu,
    memory,
    mesh,
    mesh_attention,
    offload,
    peer_networks,
    potentials,
    products,
    quantities,
    rank,
    readers,
    relations,
    rivals,
    s_step,
    scaling,
    second_order,
    sizes,
    speed,
    wire,
)

TABLES = (
    products,
    ablation,
    sizes,
    readers,
    relations,
    second_order,
    rivals,
    exchange,
    s_step,
    speed,
    memory,
    mesh_attention,
    mesh,
    wire,
    batch,
    calendars,
    quantities,
    containers,
    scaling,
    offload,
    potentials,
    rank,
    field_models,
    peer_networks,
    baselines,
    gpu,
    gpu.README,
)
BEGIN = "<!-- results: written by `python benchmarks/readme.py` -->"
END = "<!-- end of results -->"
DEMO_BEGIN = "<!-- demo: written by `python benchmarks/readme.py` -->"
DEMO_END = "<!-- end of demo -->"
LOST_BEGIN = "<!-- losses: written by `python benchmarks/readme.py` -->"
LOST_END = "<!-- end of losses -->"
MEASURED_HEADS = ("task", "data", "scitoolkit", "baselines in the same run")
MEASURED = ROOT / "docs" / "measured.md"

# docs/measured.md: benchmark -> (task, data, scitoolkit, baselines).
ROWS = {
    "emulation_rb2d": (
        "Emulator of turbulent convection, one step of 0.25 and rollouts",
        "Rayleigh-Bénard at Ra 10⁶, trained on 34 frames of one flow, tested on 16 of another",
        "error relative to persistence, worst variable: {one_step_over_persistence_max:.2f} after "
        "one step, {rollout8_over_persistence_max:.2f} after eight; better than persistence for "
        "{rollout_steps_better} steps; training {train_cpu_seconds:.0f} CPU-s; "
        "{data_wait_share:.1%} of a step spent waiting for a slow file system",
        "persistence 1; linear extrapolation {linear_over_persistence_max:.2f} after one step; "
        "h5py + DataLoader: waiting {dataloader_wait_share:.0%} of a step",
    ),
    "emulation_uncertainty": (
        "90 % intervals of rollouts, leads of 1 to 16 steps",
        "Kuramoto-Sivashinsky, calibrated on {trajectories[1]} trajectories, tested on "
        "{trajectories[2]} others",
        "coverage {coverage90_min:.3f} to {coverage90_max:.3f} over all leads; CRPS at most "
        "{crps_over_mae_max:.2f} of the mean absolute error; {members} members, "
        "{train_cpu_seconds:.0f} CPU-s",
        "uncalibrated spread of the members: coverage {coverage_of_the_spread_alone[0]:.2f} after "
        "one step",
    ),
    "superres_rb2d": (
        "Super-resolution of turbulent convection, 16 x 64 x 256 nodes from 4 x 8 x 32",
        "Rayleigh-Bénard at Ra 10⁶, trained on 40 frames of one flow, tested on 16 of another",
        "R² p {r2_p:.3f}, b {r2_b:.3f}, u {r2_u:.3f}, w {r2_w:.3f}; with the spectrum of a third "
        "flow: error of kinetic energy {kinetic_energy_error:.1%}, of dissipation "
        "{dissipation_error:.1%}; training {train_cpu_seconds:.0f} CPU-s",
        "multilinear {r2_trilinear[p]:.3f}, {r2_trilinear[b]:.3f}, {r2_trilinear[u]:.3f}, "
        "{r2_trilinear[w]:.3f}; errors {trilinear[kinetic_energy_error]:.0%} and "
        "{trilinear[dissipation_error]:.0%}",
    ),
    "superres_prediction": (
        "Prediction streamed to file, {frames} x 512 x 2048 nodes x 4 fields",
        "the shipped surrogate of convection, one thread",
        "{growth_mib:.0f} MiB of memory for {output_mib:.0f} MiB of output, difference from the "
        "direct query {difference_from_query:g}; {points_per_second[one_image]:,.0f} points/s, "
        "{points_per_second[shipped]:,.0f} averaged over 4 reflections; cost per point varies by "
        "{cost_per_point_max_over_min:.2f} x over 3 sizes",
        "MeshfreeFlowNet's evaluation path {points_per_second[original]:.0f} points/s; its decoder "
        "in our prediction loop {points_per_second[imnet]:,.0f}, with residuals "
        "{points_per_second[imnet_residuals]:,.0f}",
    ),
    "pde_derivatives": (
        "Training step under four equations with second derivatives",
        "MeshfreeFlowNet's decoder, 2 crops of 512 points, one thread",
        "{seconds_per_step[ours]:.2f} s, {cost_over_no_pde:.1f} x a step without equations; "
        "gradients agree to {gradient_relative_error:.0e}; {memory_ratio:.1f} x less memory",
        "the published layer (25 autograd calls) {speedup_vs_original:.1f} x slower, "
        "nested torch.func.jvp {speedup_vs_jvp:.1f} x slower",
    ),
    "compression": (
        "Compression, every point within 1 % of the range",
        "turbulence 64³ (real)",
        "{gain_db_linear_min:.1f} dB (linear enhancer) and {gain_db_network_min:.1f} dB (networks) "
        "above the best plain codec at equal total bytes, worst field; "
        "{bound_violations} points beyond the bound; "
        "{corruptions_silent} of {corruptions_tried} damaged streams decoded without an error",
        "SZ3 (gain over it {gain_db_linear_over_sz3_min:.1f} dB), SPERR, ZFP",
    ),
    "comet": (
        "Training with compressed activations: peak activation memory",
        "Rayleigh-Bénard 256 x 64, residual network of 50 convolutions, one thread",
        "{activation_memory_ratio:.1f} x less (upper limit {nothing_saved_ratio:.1f} x, with no "
        "activation saved) at gradient error {gradient_error:.4f}, step {step_time_ratio:.2f} x as "
        "long, accuracy {accuracy_drop:.2f} points lower after 120 steps (3 seeds); "
        "3-D U-Net {others[unet3d][activation_memory_ratio]:.1f} x (upper limit "
        "{others[unet3d][nothing_saved_ratio]:.1f} x); ResNet-56 with batch normalisation "
        "{others[resnet56_batchnorm][activation_memory_ratio]:.1f} x at "
        "{others[resnet56_batchnorm][gradient_error]:.3f}",
        "activation checkpointing {checkpointing[activation_memory_ratio]:.1f} x, step "
        "{checkpointing[step_time_ratio]:.2f} x as long; ActNN's quantisation, 2 bits "
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
        "series with a known smallest error (Lorenz-63 0.020, waves 0.200, noisy Lorenz-96 0.10)",
        "RMSE: Lorenz-63 {lorenz63_rmse:.4f}, Lorenz-96 {lorenz96_rmse:.4f}, under noise "
        "{lorenz96_noise_rmse:.3f}, waves {waves_rmse:.4f}, ERSSTv5 {ersst_rmse:.3f} degC; OISST "
        "test R² {sc20_r2:.3f}; Kuramoto-Sivashinsky valid for {ks_valid_time:.1f} Lyapunov times",
        "LSTM on Kuramoto-Sivashinsky: {ks_lstm_valid_time:.2f} Lyapunov times; Lorenz-63: opinf "
        "{peers[lorenz63][opinf cubic]:.4f}, pySINDy {peers[lorenz63][pySINDy map, cubic]:.4f}, "
        "PyDMD {peers[lorenz63][PyDMD, delays]:.2f}",
    ),
    "forecast_intervals": (
        "90 % intervals written by `predict`",
        "the same series and two more, every lead",
        "cover {coverage90_min:.3f} to {coverage90_max:.3f}, adaptive ones "
        "{adaptive[coverage90_min]:.3f} to {adaptive[coverage90_max]:.3f}; Lorenz-63 CRPS "
        "{lorenz63_crps:.4f}",
        "nominal 0.9",
    ),
    "search_quality": (
        "Search: best of {trials} trials, {seeds} seeds that also shift the optimum",
        "Hartmann6, Ackley5, a training-like loss of 7 variables",
        "median regret {hartmann6:.4f}, {ackley5:.1f}, {mixed7:.4f} (four workers "
        "{mixed7_four_workers:.4f}); on seeds not used for tuning "
        "{ours_on_unused_seeds[hartmann6]:.4f}, {ours_on_unused_seeds[ackley5]:.1f}, "
        "{ours_on_unused_seeds[mixed7]:.4f}; {ms_per_proposal_120:.0f} ms per proposal",
        "Optuna: GP {peers[optuna gp][hartmann6]:.4f}, {peers[optuna gp][ackley5]:.1f}, "
        "{peers[optuna gp][mixed7]:.4f}; TPE {peers[optuna tpe][hartmann6]:.2f}, "
        "{peers[optuna tpe][ackley5]:.1f}, {peers[optuna tpe][mixed7]:.2f}; CMA-ES "
        "{peers[optuna cma][hartmann6]:.2f}, {peers[optuna cma][ackley5]:.1f}, "
        "{peers[optuna cma][mixed7]:.2f}; DeepHyper's CBO (4 seeds) "
        "{peers[deephyper cbo, 4 seeds][hartmann6]:.2f}, "
        "{peers[deephyper cbo, 4 seeds][ackley5]:.1f}, {peers[deephyper cbo, 4 seeds][mixed7]:.2f}",
    ),
    "search_unseen": (
        "Search: best of {trials} trials on {functions} functions that nothing was chosen on, "
        "{seeds} seeds that also shift the optimum",
        "{names}",
        "median regret at or below that of Optuna's GP on {no_worse_than_gp}, of its TPE on "
        "{no_worse_than_tpe}; {cpu_share:.2f} of the GP's CPU time",
        "Optuna's GP and TPE",
    ),
    "search_wider": (
        "Search by eight workers, of four trainings, and of three objectives; {seeds} seeds",
        "four functions of `search_unseen`; reservoir, perceptron, boosted trees, kernels; three "
        "problems of six variables",
        "at or below the best peer on {no_worse_eight_workers}, on {no_worse_trainings} trainings, "
        "and by hypervolume on {no_worse_hypervolume}",
        "Optuna's TPE; for three objectives NSGA-II too",
    ),
    "nas": (
        "Architecture search on a table of {table_size} trained networks",
        "ring of Mackey-Glass equations; 12 seeds, 60 trials",
        "third quartile {q75_excess_ours:.1%} above the best; one-shot {one_shot_excess:.1%} at "
        "{one_shot_cost:.2f} of the cost; test margin over the best closed form and a hand-made "
        "LSTM: {pays_margin_in_seed_noise:+.1f} seed standard deviations ({pays_where})",
        "random search {q75_excess_random:.1%}, evolution {q75_excess_evolution:.1%}",
    ),
    "pod_streaming": (
        "POD of a file larger than memory",
        "338 MB, 1,914 x 44,219 float32",
        "{speedup_vs_numpy_svd:.1f} x faster, {peak_rss_growth_mib:.0f} MiB of memory "
        "({peak_rss_growth_10x_mib:.0f} MiB at 10 x the snapshots), "
        "singular values agree to {sigma_relative_error:.0e}",
        "numpy's full SVD",
    ),
    "tensor_product": (
        "Equivariant tensor product with gather and scatter",
        "7 problems of NequIP, MACE and SevenNet, 10,000 edges, one CPU thread",
        "smallest speed-up: {forward_speedup_min:.0f} x forward, "
        "{forward_backward_speedup_min:.0f} x with backward, "
        "{double_backward_speedup_min:.0f} x with double backward",
        "the faster of e3nn and cuEquivariance on CPU",
    ),
    "graphs": (
        "Full-graph GCN 128-64-16, one epoch, one thread",
        "R-MAT, 131,072 nodes, 3.7 million nonzeros; Cora",
        "{epoch_seconds[ours]:.2f} s, GAT (8 heads of 8) {gat_epoch_seconds[ours]:.2f} s; "
        "Cora {cora_accuracy_mean:.3f} ± {cora_accuracy_deviation:.3f}; 8 ranks agree to "
        "{equality_max_relative:.0e}",
        "torch-geometric: edge_index {epoch_seconds[edge_index]:.1f} s, "
        "CSR {epoch_seconds[csr]:.2f} s, GAT {gat_epoch_seconds[torch-geometric]:.1f} s",
    ),
    "campaign": (
        "Campaigns of many files",
        "100,000 one-sample files; a Well file in a slow file system; convection at 4 Rayleigh "
        "numbers",
        "{layouts_ok} of {layouts_tried} layouts read; index of 100,000 files "
        "{index_seconds_100k:.1f} s, later starts {restart_seconds_100k:.2f} s, "
        "{descriptors_max} file descriptors; statistics read {statistics_bytes_ratio:.1f} x the "
        "training part; batches {speedup_well_dataset_by_size[small]:.1f} x the peer's at "
        "0.26 MB a sample, {speedup_well_dataset_by_size[large]:.1f} x at 8 MB; error of an "
        "emulator of eight simulations {campaign_gain:.2f} of that of one, worst test",
        "WellDataset and DataLoader, 2 workers: 1",
    ),
    "loader": (
        "Shuffled batches from a slow file system (1 ms a request, 200 MB/s)",
        "256 MiB of HDF5, 16 samples of 256 KiB a chunk, a quarter of it in memory",
        "{samples_per_second[chunked_25]:.0f} samples/s ({speedup_chunked_25:.0f} x DataLoader), "
        "gzip {samples_per_second[gzip_25]:.0f} ({speedup_gzip_25:.1f} x); "
        "{amplification_later_25:.2f} bytes read per byte used; chunk loads "
        "{loads_over_bound_max:.3f} x the lower bound",
        "DataLoader with 2 workers {samples_per_second[chunked_w2]:.0f}, gzip "
        "{samples_per_second[gzip_w2]:.0f}, "
        "{amplification_dataloader:.0f} bytes per byte; StatefulDataLoader "
        "{samples_per_second[stateful_chunked_w2]:.0f}; after conversion: MosaicML Streaming "
        "{samples_per_second[mosaic_mds_w2]:.0f}, tensorstore with 16 samples a chunk "
        "{samples_per_second[tensorstore_rows16]:.0f}, with one "
        "{samples_per_second[tensorstore_rows1]:.0f}",
    ),
    "loader_remote": (
        "Shuffled rows from a Zarr store behind HTTP (100 ms a request, one link of 32 MB/s)",
        "128 MiB in chunks of 1 MiB",
        "{over_bound:.2f} x the time that the bytes take on the link, "
        "{over_bound_one_thread:.1f} x with one thread; finding the chunks "
        "{listing_seconds:.1f} s, once",
        "the bytes of the epoch over the bandwidth: 1",
    ),
    "potential_deepmd": (
        "Deep Potential of water (se_e2_a, float64)",
        "192 and 1,536 atoms, deepmd-kit's weights, one thread",
        "energy + forces {energy_forces_speedup:.1f} x faster, with tables "
        "{compressed_speedup:.1f} x, a training step {train_speedup:.1f} x; force RMSE "
        "{force_rmse_500:.3f} eV/Å after 500 steps; energies and forces agree to {agreement:.0e}",
        "deepmd-kit 3.2 (TensorFlow CPU): 1; {peer_force_rmse_500:.3f} eV/Å",
    ),
    "potential_se_atten": (
        "Deep Potential of water (se_atten, 2 attention layers, float64)",
        "192 atoms, 89 neighbours each, default sizes, one thread",
        "energy + forces {ms_per_atom_2_layers:.1f} ms per atom, reference in plain torch "
        "{reference_ms_per_atom_2_layers:.1f}; matrix products alone at the speed of dgemm "
        "{floor_ms_per_atom_2_layers:.1f}; agreement {agreement_2_layers:.0e}",
        "deepmd-kit 3.2 (TensorFlow CPU) {peer_ms_per_atom_2_layers:.1f} ms",
    ),
    "potential_mace": (
        "MACE, energy + forces; training step (one thread, float32)",
        "192 atoms of water, 2 layers, correlation 3, equal weights",
        "64x0e+64x1o: {ours_energy_forces_ms_small:.0f} ms; {ours_train_ms_small:.0f} ms. "
        "With 64x2e: {ours_energy_forces_ms_large:.0f} ms; {ours_train_ms_large:.0f} ms. "
        "Agreement {relative_error_large:.0e}",
        "mace-torch: {mace_energy_forces_ms_small:.0f} ms; {mace_train_ms_small:.0f} ms. "
        "{mace_energy_forces_ms_large:.0f} ms; {mace_train_ms_large:.0f} ms",
    ),
    "potential_acac": (
        "MACE of acetylacetone trained for {cpu_seconds:.0f} CPU-s, {parameters:,} parameters",
        "475 frames at 300 K, 650 for testing; equal loss, batch and learning rate; Muon here, "
        "Adam in mace-torch",
        "energy {energy_mev:.1f} meV, force {force_mev:.1f} meV/Å after {epochs:.0f} epochs",
        "mace-torch in the same CPU time: {peer_energy_rmse_mev:.1f} meV, "
        "{peer_force_rmse_mev_per_angstrom:.1f} meV/Å after {peer_epochs:.0f} epochs",
    ),
    "potential_nve": (
        "Energy drift of `acac_mace` at constant energy (float64)",
        "{picoseconds:.0f} ps, steps of {step_fs} fs, {atoms} atoms",
        "{drift_mev_per_atom_per_ns:.2f} ± {uncertainty_mev_per_atom_per_ns:.2f} meV/atom/ns, "
        "{ms_per_step:.0f} ms per step",
        "–",
    ),
    "potential_finetune": (
        "Fine-tuning `acac_mace` on 50 frames of an unseen molecule (float32, one thread)",
        "methoxyethane at 400 K labelled by GFN2-xTB, 100 frames for testing",
        "force RMSE {force_rmse_tuned:.0f} meV/Å after {steps} steps ({seconds_tuned:.0f} CPU-s); "
        "trained from scratch {force_rmse_scratch:.0f} after as many steps",
        "mace-torch, the same weights: {force_rmse_mace:.0f} meV/Å after {mace_steps} steps "
        "({seconds_mace:.0f} CPU-s), reached here in {mace_time_ratio:.2f} of the time",
    ),
    "potential_ten_elements": (
        "Fine-tuning a mace-torch model of {elements} elements on 50 cells of two of them",
        "alloys labelled by EMT, new labels at positions scaled by 1.02; {steps} steps, one thread",
        "force error on the new cells {own_readout_new_over_start:.2f} of the start's, on the "
        "former ones {own_readout_old_over_before:.2f} with replayed frames and a readout for "
        "them; {low_rank_new_over_start:.2f} and {low_rank_old_over_before:.2f} with changes of "
        "rank 4; {bytes_changed_of_absent} bytes of the other elements changed",
        "without replay {no_replay_new_over_start:.2f} and {no_replay_old_over_before:.2f}",
    ),
    "potential_e0": (
        "MACE with isolated atoms in the data, default settings",
        "24 crystals of CuAu (EMT), {steps} steps, 60 crystals for testing, three seeds",
        "energy RMSE {energies_by_seed[0][0]:.1f}, {energies_by_seed[1][0]:.1f} and "
        "{energies_by_seed[2][0]:.1f} meV/atom; a lone atom of nine models has E0 to "
        "{lone_atom_error_ev:.0e} eV",
        "mace-torch at its defaults, as many steps: {energies_by_seed[0][1]:.1f}, "
        "{energies_by_seed[1][1]:.1f} and {energies_by_seed[2][1]:.1f} meV/atom, of medians "
        "{energy_over_mace:.2f} x smaller",
    ),
    "atoms_fuzz": (
        "{files} generated files of atoms, half of them damaged",
        "extxyz, deepmd, mixed deepmd, ASE database; {kinds_of_faults} kinds of faults",
        "{right} read as meant, {refused} refused with file and frame, {silent} silently wrong",
        "–",
    ),
    "potential_memory": (
        "Memory of MACE in inference, neighbour list included (64x0e+64x1o)",
        "10,000 and 100,000 atoms, 52 neighbours, one thread",
        "{kb_per_atom_float32:.0f} KB per atom in float32, {kb_per_atom_float64:.0f} in float64; "
        "time per atom with 100,000 atoms {flatness:.2f} x that with 216",
        "weights of all edges stored: {stored_us_float32:.0f} µs per atom, streamed "
        "{streamed_us_float32:.0f}",
    ),
    "compression_size": (
        "Bytes within a bound of 1 %, 0.1 % and 0.01 % of the range",
        "turbulence, cosmology, ocean (used for tuning); convection, ocean (not used); unordered "
        "1-D data",
        "relative to the smallest peer: median {size_median_shipped:.2f} and "
        "{size_median_fresh:.2f} (data not used), worst {size_worst_shipped:.2f} and "
        "{size_worst_fresh:.2f}; 1-D data at most {size_1d_worst:.2f}",
        "the smallest of SZ3 (best of four settings), SPERR and ZFP: 1",
    ),
    "compression_qoi": (
        "Bytes within a bound on a quantity (speed, vorticity, gradient, flux, divergence)",
        "cosmology, turbulence, convection; {cases:,} random cases",
        "relative to the peer: median {qoi_size_ratio:.2f}, worst {qoi_size_ratio_worst:.2f}; "
        "{qoi_violations} violations",
        "compression-safeguards over SZ3 at its best bound: 1",
    ),
    "compression_speed": (
        "MB/s at a bound of 0.1 % of the range, one core",
        "turbulence mirrored to 256³ (67 MB); 1 GB for memory and random access",
        "compression and decompression: `--for size` {size_mbps_in:.0f} and {size_mbps_out:.0f}; "
        "`--for speed` {speed_mbps_in:.0f} and {speed_mbps_out:.0f}, at most "
        "{speed_size_over_sz3:.2f} of SZ3's bytes; 1 GB within {rss_1gb_mib:.0f} MiB of memory; "
        "a chunk of 64³ in {random_access_ms:.1f} ms",
        "SZ3 {sz3_mbps_in:.0f} and {sz3_mbps_out:.0f}",
    ),
    "vlasov": (
        "Vlasov equation in 1X1V, modal DG of degree 2: time per degree of freedom and stage",
        "64 x 256 cells, one thread",
        "{ns_per_dof:.2f} ns; error of Landau damping {landau_error:.0e}, of two-stream growth "
        "{two_stream_error:.1e}, of mass {mass_error:.0e}; order {order_p2:.2f}",
        "collocated numba {over_numba:.1f} x slower, NumPy by BLAS {over_numpy:.0f} x",
    ),
    "submatrix": (
        "Density matrix of tight-binding carbon by submatrices",
        "crystals of {orbitals[0]:,} to {orbitals[1]:,} orbitals",
        "errors: energy {energy_error:.0e}, forces {force_error:.0e}; error estimate within "
        "a factor of {estimate_factor:.1f}; time linear within {linearity_error:.0%}; faster than "
        "dense diagonalization above {crossover_orbitals:,.0f} orbitals",
        "sparse purification (scipy) {over_purification:.1f} x slower",
    ),
    "search_overhead": (
        "Architecture search, 32 workers",
        "2 s trials that sleep, 8,605,184 architectures",
        "workers busy {busy_share:.3f} of the time, manager {own_ms_per_trial:.2f} ms per trial, "
        "{duplicates} repeated trials",
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
        "reaches Adam's best loss in {fits[forecast][time_ratio]:.2f}, "
        "{fits[poisson][time_ratio]:.2f} and {fits[potential][time_ratio]:.2f} of its time (10 "
        "units per layer), {narrow_potential[time_ratio]:.2f} with 6 units per layer",
        "Adam, the best of three rates: 1",
    ),
    "exchange_speed": (
        "Data-parallel step, 48 MiB of gradients",
        "12 layers of 1,024, 128 samples a rank, gloo on one machine",
        "{step_over_ddp_2:.2f} of the time of DDP on 2 processes, {step_over_ddp_4:.2f} on 4; 4 "
        "killed ranks resume bit for bit: {resume_equal}",
        "DistributedDataParallel: 1",
    ),
    "sharded_memory": (
        "Peak memory of a sharded training: sum over processes, relative to one process",
        "{parameters_mib:.0f} MiB of parameters, AdamW, gloo on CPUs",
        "{peak_share_2:.2f} on 2 processes, {peak_share_4:.2f} on 4; model built on the meta "
        "device {built_share:.2f}; 90 % pruned: within {samo_bytes_error:.1%} of the formula",
        "even division: 1",
    ),
    "wire_bytes": (
        "Bytes of a data-parallel step: reduction against the full exchange",
        "two surrogates, 2 nodes of 2 processes, {seeds} seeds",
        "`sdp4bit` {bytes_ratio_sdp4bit:.2f} x ({bytes_ratio_between_nodes:.2f} x between nodes), "
        "`error_bounded` {bytes_ratio_error_bounded:.2f} x, loss {loss_difference_percent:+.1f} %",
        "naive 4 bits: loss {naive_loss_difference_percent:+.1f} %",
    ),
    "large_batch": (
        "Loss at 4 and 16 times the batch size with LAMB and LEGW, without retuning",
        "three functions without noise, {epochs} epochs, {seeds} seeds",
        "{loss_difference_4x_percent:+.0f} % and {loss_difference_16x_percent:+.0f} %",
        "base batch size: 0",
    ),
    "potential_lammps": (
        "LAMMPS: time per atom and step, one rank",
        "{atoms} atoms of water; MACE and se_e2_a in float64",
        "MACE {mace_lammps_us:.0f} µs, {lammps_over_library:.2f} x the library alone; se_e2_a "
        "{se_e2_a_lammps_us:.0f} µs; several ranks agree with Python to {equality_max:.0e}",
        "symmetrix (serial, equal weights) {symmetrix_speedup_float64:.1f} x slower, "
        "{symmetrix_speedup_float32:.0f} x slower than float32 here; deepmd-kit's LAMMPS "
        "{deepmd_lammps_speedup:.1f} x slower",
    ),
    "deploy_latency": (
        "A surrogate as one C file, one thread",
        "perceptron 60-128-128-60, called from C; the shipped emulator of convection",
        "{mlp_us:.2f} µs per call, {mlp_batch64_us:.1f} µs for 64 samples; emulator "
        "{emulator_ms:.1f} ms",
        "onnxruntime: 64 samples {mlp_batch64_us_onnxruntime:.1f} µs; emulator "
        "{emulator_ms_onnxruntime:.1f} ms",
    ),
    "deploy_pool": (
        "Two hundred surrogates under a memory budget: CPU time per request",
        "6 MiB each within 100 MiB, Zipf requests, two threads; load {load:.1f}",
        "{ms_per_request_pool:.2f} ms; 99th percentile of a hit {pool_p99_ratio:.2f} x a "
        "resident call; with injected failures {lost} lost and {wrong} wrong of 10,000",
        "LRU cache over torch.load {ms_per_request_plain:.2f} ms, with mmap and assign "
        "{ms_per_request_mapped:.2f} ms",
    ),
    "deploy_bits": (
        "Layers in 8 and 4 bits as C, one thread",
        "n x n for n from 256 to 4,096; groups of 32 inputs in 4 bits",
        "one sample: speed-up over the best peer at equal bits >= {bits_speedup_batch1_min:.2f}; "
        "32 samples: at most {bits_over_int8_batch32:.2f} of the time of torch's int8",
        "onnxruntime and torch: 1",
    ),
    "emulation_long": (
        "Rollouts of the shipped emulator of steady convection, {steps} steps",
        "Rayleigh-Bénard at Ra 10⁶, {starts} unseen seeds, solver as reference",
        "finite for {finite_steps_min} steps from every start; error of kinetic energy "
        "{energy_error:.1%}, of the Nusselt number {nusselt_error:.1%}; spectra of b, u, w within "
        "a factor {spectrum_factor_99:.1f}; error relative to persistence, worst variable: "
        "{one_step_over_persistence_max:.2f} after one step, {rollout8_over_persistence_max:.2f} "
        "after eight; cost {cost_over_solver:.2f} of the solver",
        "persistence 1",
    ),
    "trainer_overhead": (
        "Trainer overhead per step",
        "2-layer MLP, batch 64, one thread",
        "{overhead_us_per_step:.0f} µs over a raw torch loop",
        "Fabric {fabric_overhead_us_per_step:.0f} µs, Accelerate "
        "{accelerate_overhead_us_per_step:.0f} µs, Lightning "
        "{lightning_overhead_us_per_step:.0f} µs",
    ),
    "product": (
        "First contact and robustness",
        "`make demo`, its {reports} reports, the wheel without a compiler, seeded faults, mutants",
        "{demo_lines} lines in {demo_seconds:.0f} s; highest report {report_height_max} px; help "
        "in {help_seconds:.2f} s; wheel {wheel_mb:.1f} MB; of {faults_run} faults {faults_lost} "
        "lost a result; {mutation_killed_share:.0%} of {mutants} mutants noticed; types of "
        "{verifytypes:.1%} of the public names known",
        "–",
    ),
}


def lines(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    shown = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return "\n".join([*shown, *(f"| {' | '.join(cells)} |" for cells in rows)])


def headlines() -> str:
    """Return README's table, with a line for the mark of old results where one has it."""
    rows = [
        row(headline, figures)
        for headline in HEADLINES
        if (figures := stored(headline.benchmark)) is not None
    ]
    text = lines(HEADS, rows)
    mark = f"{OLD} measured more than one release before this version."
    return f"{text}\n\n{mark}" if OLD in text else text


def table() -> str:
    """Return the rows of docs/measured.md that have stored results."""
    rows = []
    for name, cells in ROWS.items():
        figures = stored(name)
        if figures is None:
            continue
        gain = "–"
        if pooled(name):
            worst, words = gains(name, figures)
            gain = f"{words}{winner(figures)} (smallest over {worst.rival})"
        rows.append(
            [
                *(cell.format(**figures) for cell in cells),
                gain,
                measured_where(figures),
                f"`run.py {name}`",
            ]
        )
    return lines(
        (*MEASURED_HEADS, "gain over the strongest, all cases", "measured", "command"), rows
    )


def demo() -> str:
    """Return the verdicts at the end of the demo's output."""
    path = RESULTS / "demo.txt"
    if not path.exists():
        return ""
    return "```text\n" + path.read_text(encoding="utf-8").strip().split("\n\n", 1)[-1] + "\n```"


def updated(readme: str) -> str:
    return between(readme, BEGIN, END, headlines())


def measured(page: str) -> str:
    page = between(page, DEMO_BEGIN, DEMO_END, demo())
    page = between(page, LOST_BEGIN, LOST_END, lines(LOST_HEADS, lost_rows()))
    return between(page, BEGIN, END, table())


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

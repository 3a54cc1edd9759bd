"""Gradient noise scale: the batch size beyond which larger batches bring little.

The noise scale is S / |G|^2, the variance of one sample's gradient over the squared norm of the
mean gradient. With batches much smaller than it, doubling the batch almost halves the number of
steps; with much larger batches a step is as good as one with the exact gradient. S and |G|^2 are
estimated from the gradients of the ranks' shares of the batch and from their mean.

Source: McCandlish et al. 2018, https://arxiv.org/abs/1812.06162, appendix A.1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from scitoolkit.core.errors import ConfigError
from scitoolkit.training.callbacks import Callback
from scitoolkit.training.view import TrainingView

KEPT = 0.99  # decay of the running means per step


@dataclass
class NoiseScale:
    """Running means of squared gradient norms, of one rank's share and of the whole batch.

    Args:
        small, large: number of samples of a share and of a step.

    Example:
        >>> scale = NoiseScale(small=8, large=32)
        >>> scale.update(3.0 + 16 / 8, 3.0 + 16 / 32)  # |G|^2 = 3, noise 16
        >>> round(scale.samples(), 3)
        5.333
    """

    small: float
    large: float
    of_share: float = 0.0
    of_all: float = 0.0
    weight: float = 0.0

    def update(self, of_share: float, of_all: float) -> None:
        """Add the squared norms of a step."""
        self.of_share = KEPT * self.of_share + (1 - KEPT) * of_share
        self.of_all = KEPT * self.of_all + (1 - KEPT) * of_all
        self.weight = KEPT * self.weight + 1 - KEPT

    def samples(self, of_share: float | None = None) -> float:
        """Return the noise scale in samples; infinite if the estimate of |G|^2 is not positive.

        Args:
            of_share: running mean averaged over the ranks; this rank's by default.
        """
        share = self.of_share if of_share is None else of_share
        square = (self.large * self.of_all - self.small * share) / (self.large - self.small)
        noise = (share - self.of_all) / (1 / self.small - 1 / self.large)
        return max(0.0, noise) / square if square > 0 else float("inf")


class NoiseScaleLog(Callback):
    """Logs the gradient noise scale of a data-parallel training as `train/noise_scale`."""

    wants_every_step = True

    def on_fit_start(self, trainer: TrainingView) -> None:
        """Enable the measurement of gradient norms in the strategy.

        Raises:
            ConfigError: the strategy cannot measure them, or there is only one process.
        """
        if not trainer.strategy.measure_gradients():
            raise ConfigError(
                "the noise scale compares the gradients of several processes",
                where="training.noise_scale",
                allowed="strategy ddp on two processes or more",
                fix="--nproc 2, or training.noise_scale=false",
            )
        samples = trainer.config.batch_size * trainer.config.accumulate
        self._scale = NoiseScale(samples / trainer.strategy.world, samples)

    def on_step(self, trainer: TrainingView) -> None:
        """Add the squared gradient norms of the step."""
        share, whole = trainer.strategy.gradient_squares()
        self._scale.update(share, whole)

    def on_log(self, trainer: TrainingView, values: Mapping[str, float]) -> None:
        """Log the estimate; collective over all ranks."""
        if not self._scale.weight:
            return
        mean = trainer.strategy.sum([self._scale.of_share])[0] / trainer.strategy.world
        samples = self._scale.samples(mean)
        if trainer.strategy.rank == 0 and trainer.run is not None and math.isfinite(samples):
            trainer.run.log_metrics({"train/noise_scale": samples}, step=trainer.step)

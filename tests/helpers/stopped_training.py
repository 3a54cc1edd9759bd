"""A training that a signal stops at a step."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from scitoolkit import api
from scitoolkit.core.errors import Interrupted
from scitoolkit.training import Callback, Trainer


def train_until(path: Path, step: int) -> None:
    """Train the job of a file until a step, at which a SIGTERM arrives."""

    class Stop(Callback):
        wants_every_step = True

        def on_step(self, trainer):
            if trainer.step == step:
                os.kill(os.getpid(), signal.SIGTERM)

    original = Trainer.__init__

    def with_stop(self, *arguments, callbacks=(), **options):
        original(self, *arguments, callbacks=[*callbacks, Stop()], **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "__init__", with_stop)
        with pytest.raises(Interrupted):
            api.train(path)

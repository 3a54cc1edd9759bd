"""What ranks import: the server of `WarmRank` imports it once, before it forks."""

from __future__ import annotations

import gc
import importlib

from scitoolkit.core.plugins import kinds

MODULES = (
    "training_worker",
    "torch._dynamo",  # the first step of any optimizer imports it
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "scitoolkit.testing.exchange",
    "scitoolkit.testing.training_strategy",
)

for _name in MODULES:
    importlib.import_module(_name)
kinds()
gc.freeze()  # forks do not copy pages by collecting what they share

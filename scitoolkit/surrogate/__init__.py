"""The life of a surrogate, written once: open, split, fit, save, load, evaluate, predict.

A domain fills the stages of `Stages`; the functions of `lifecycle` compose them, and `SurrogateJob`
makes them a domain of the command line. A domain that differs calls the functions in its own order.
"""

from scitoolkit.surrogate.ensemble import Members, MembersTask
from scitoolkit.surrogate.job import SurrogateJob
from scitoolkit.surrogate.lifecycle import (
    Start,
    Trained,
    array_loader,
    fit,
    load,
    open_checked,
    save,
    start,
)
from scitoolkit.surrogate.stages import Calibrates, Finalises, Opened, Stages, Traceable

__all__ = [
    "Calibrates",
    "Finalises",
    "Members",
    "MembersTask",
    "Opened",
    "Stages",
    "Start",
    "SurrogateJob",
    "Traceable",
    "Trained",
    "array_loader",
    "fit",
    "load",
    "open_checked",
    "save",
    "start",
]

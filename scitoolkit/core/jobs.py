"""Finding the job that a configuration is for.

A domain is found by the `domain:` key, through the entry-point group `scitoolkit.domain`;
our own domains come in by the same door as anybody's plug-in.
"""

from __future__ import annotations

from typing import Any

from scitoolkit.core.config import ConfigProblems, Document, Problem
from scitoolkit.core.job import Job
from scitoolkit.core.plugins import Kind

domains: Kind[type[Job]] = Kind(
    "domain",
    "a domain of the command line",
    contract="scitoolkit.testing:JobContract",
    former="surrogate",
)


def job_of(document: Document) -> Job:
    """Return the job that a configuration names.

    Raises:
        ConfigProblems: it names none.
        ConfigError: there is no job of that name.
    """
    name = document.raw.get("domain", document.raw.get("surrogate"))
    if name is None:
        known = ", ".join(domains.names())
        raise ConfigProblems(
            [Problem("domain", f"missing; it picks the domain: {known}", str(document.path))]
        )
    return domains.get(str(name))()


def checked_job(document: Document) -> tuple[Job, Any]:
    """Return the job and the checked configuration of a document."""
    job = job_of(document)
    return job, document.validate(job.config_class)

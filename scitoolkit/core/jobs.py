"""Lookup of the job for a configuration.

The `domain:` key selects the domain from the entry-point group `scitoolkit.domain`, which built-in
domains and third-party plug-ins share.
"""

from __future__ import annotations

import re
from typing import Any

from scitoolkit.core.config import ANCHORS, ConfigProblems, Document, Problem
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.job import Job
from scitoolkit.core.plugins import Kind
from scitoolkit.core.suggest import nearest_name

domains: Kind[type[Job]] = Kind(
    "domain",
    "trains, evaluates and applies one kind of surrogate",
    contract="scitoolkit.testing:JobContract",
    former="surrogate",
)


def job_of(document: Document) -> Job:
    """Return the job named by the `domain:` key of a configuration.

    Raises:
        ConfigProblems: the key is missing.
        ConfigError: no domain has that name.
    """
    name = document.raw.get("domain", document.raw.get("surrogate"))
    if name is None:
        allowed = ", ".join(domains.names())
        raise ConfigProblems(
            [Problem("domain", f"missing; it selects one of {allowed}", document.where("domain"))]
        )
    return domains.get(str(name))()


def domain_schema(name: str) -> dict[str, Any]:
    """Return the JSON schema of the configuration files of a domain.

    Raises:
        ConfigError: no domain has that name.
    """
    schema = domains.get(name).config_class.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        # A file must name its domain, which has a default in Python.
        "required": ["domain", *(key for key in schema.get("required", []) if key != "domain")],
        "patternProperties": {f"^{re.escape(ANCHORS)}": {}},
    }


def tasks() -> list[str]:
    """Return the tasks of `scitoolkit init`, in alphabetical order."""
    return sorted(job.task for job in map(domains.get, domains.names()) if job.task)


def job_for_task(task: str) -> Job:
    """Return the job for a task of `scitoolkit init`, given the task's or the domain's name.

    Raises:
        ConfigError: no domain has that task.
    """
    jobs = {name: domains.get(name) for name in domains.names()}
    by_task = {job.task: job for job in jobs.values() if job.task}
    job = by_task.get(task) or jobs.get(task)
    if job is None:
        raise ConfigError(
            f"unknown task {task!r}",
            allowed=", ".join(tasks()),
            fix=nearest_name(task, by_task) or "",
        )
    return job()


def checked_job(document: Document) -> tuple[Job, Any]:
    """Return the job and the validated configuration of a document."""
    job = job_of(document)
    return job, document.validate(job.config_class)

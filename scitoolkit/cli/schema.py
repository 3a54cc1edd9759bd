"""`scitoolkit schema`: JSON schema of a domain's configuration files."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from scitoolkit.cli import _options as options

NAME = "schema"


def command(
    domain: Annotated[
        str, typer.Argument(metavar="DOMAIN", help="A domain listed by `scitoolkit ls domain`.")
    ],
    as_json: options.Json = False,
) -> None:
    """Print the JSON schema of a domain, with which editors complete and check configurations."""
    from scitoolkit import api

    schema = api.schema(domain)
    if as_json:
        options.print_json(schema)
    else:
        print(json.dumps(schema, indent=2))

"""Figures and one self-contained HTML page, drawn from a run directory alone.

Nothing here knows a model or a domain: what is to be shown is described by
`scitoolkit.core.results`, so a report can be drawn again years later without torch.
"""

from scitoolkit.reporting.index import write_index
from scitoolkit.reporting.page import write_report
from scitoolkit.reporting.tables import text_table

__all__ = ["text_table", "write_index", "write_report"]

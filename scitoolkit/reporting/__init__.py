"""Reports: figures and a self-contained HTML page, drawn from a run directory alone.

The contents are described by `scitoolkit.core.results`, independent of models and domains, so a
report can be redrawn later without torch.
"""

from scitoolkit.reporting.index import write_index
from scitoolkit.reporting.page import write_report
from scitoolkit.reporting.tables import text_table

__all__ = ["text_table", "write_index", "write_report"]

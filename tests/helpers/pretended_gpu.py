"""A pytest plug-in that gives the whole process a pretended GPU: `-p tests.helpers.pretended_gpu`.

Imported before any test module, so that no module has looked for a GPU earlier.
"""

from __future__ import annotations

from tests.helpers import pretend_cuda

pretend_cuda.start()

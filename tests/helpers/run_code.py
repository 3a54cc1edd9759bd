"""Script of `WarmStart` that runs Python code as `python -W error -c CODE` does."""

from __future__ import annotations

import sys
import warnings

if __name__ == "__main__":
    code = sys.argv.pop()
    sys.argv[0], sys.path[0] = "-c", ""
    warnings.simplefilter("error")
    # torch-geometric calls torch.jit.script while it is imported.
    warnings.filterwarnings("ignore", "`torch.jit.script`", DeprecationWarning)
    exec(compile(code, "<string>", "exec", dont_inherit=True), globals())

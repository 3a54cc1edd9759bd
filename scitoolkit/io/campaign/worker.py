"""Worker process that reads headers: JSON list of files on stdin, JSON table on stdout."""

from __future__ import annotations

import json
import sys

from scitoolkit.io.campaign.table import read_share

if __name__ == "__main__":
    json.dump(read_share(json.load(sys.stdin)).to_json(), sys.stdout)

"""Cache of a campaign's index in a folder; headers of changed files are read again."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scitoolkit.core.files import temporary_name
from scitoolkit.core.log import get_logger
from scitoolkit.io.campaign.campaign_layout import CampaignOptions
from scitoolkit.io.campaign.files import CampaignFiles
from scitoolkit.io.campaign.segments import Segments
from scitoolkit.io.campaign.table import HeaderTable, read_headers
from scitoolkit.io.fields import PathLike

_logger = get_logger(__name__)
_VERSION = 5


@dataclass
class IndexCache:
    """Cached index in a JSON file.

    Attributes:
        file: the cache file; None without cache.
        key: inputs of the index other than the files.
        content: content of the file when it was opened.
    """

    file: Path | None
    key: str
    content: Mapping[str, Any] | None = None

    @classmethod
    def of(
        cls,
        folder: PathLike | None,
        path: PathLike | Sequence[PathLike],
        variables: Sequence[str] | None,
        options: CampaignOptions,
    ) -> IndexCache:
        """Return the cache of a campaign in a folder; a damaged cache is ignored."""
        sources = [path] if isinstance(path, str | os.PathLike) else path
        paths = [os.path.abspath(p) for p in sources]
        chosen = None if variables is None else list(variables)
        key = json.dumps([_VERSION, paths, chosen, asdict(options)], default=list)
        if folder is None:
            return cls(None, key)
        name = hashlib.sha256(key.encode()).hexdigest()[:16]
        file = Path(folder) / f"index_{name}.json"
        content = None
        with suppress(OSError, ValueError):
            checksum, _, body = file.read_bytes().partition(b"\n")
            # A damaged cache may still be valid JSON, of wrong positions.
            if int(checksum, 16) == zlib.crc32(body):
                content = json.loads(body)
        return cls(file, key, content if isinstance(content, dict) else None)

    def unchanged(self, found: CampaignFiles) -> Segments | None:
        """Return the cached index if no file was added, removed or changed; else None."""
        if self.content is None or self.content.get("digest") != found.digest(self.key):
            return None
        return Segments.from_json(self.content["segments"])

    def headers(self, files: CampaignFiles) -> HeaderTable:
        """Return the headers of files, reading those that are not cached or changed since."""
        if self.content is None:
            return read_headers(files.paths)
        cached = Segments.from_json(self.content["segments"])
        # A file with another size or time of modification is another one, and is read again.
        states = zip(cached.files.paths, cached.files.sizes, cached.files.modified, strict=True)
        cached_numbers = {state: i for i, state in enumerate(states)}
        wanted = list(zip(files.paths, files.sizes, files.modified, strict=True))
        changed = [state[0] for state in wanted if state not in cached_numbers]
        _logger.info("%d of %d files changed since they were indexed", len(changed), len(wanted))
        fresh, number, table = read_headers(changed), 0, HeaderTable()
        for state in wanted:
            if state in cached_numbers:
                table.add(*cached.table.row(cached_numbers[state]))
            else:
                table.add(*fresh.row(number))
                number += 1
        return table

    def save(self, found: CampaignFiles, segments: Segments) -> None:
        """Write an index to the cache; log a warning if this fails."""
        if self.file is None:
            return
        content = {"digest": found.digest(self.key), "segments": segments.to_json()}
        temporary = temporary_name(self.file)
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            body = json.dumps(content).encode()
            temporary.write_bytes(b"%08x\n" % zlib.crc32(body) + body)
            temporary.replace(self.file)
        except OSError as error:
            _logger.warning("the index cannot be cached (%s): %s", error.strerror, self.file)

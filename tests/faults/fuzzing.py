"""Seeded damage of valid inputs, and the loop that gives damaged inputs to a parser."""

from __future__ import annotations

import faulthandler
import json
import os
import random
import resource
import signal
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from scitoolkit.core.errors import ScitoolkitError

ROOT = Path(__file__).resolve().parents[2]
LONGEST, HANG = 10.0, 60  # seconds of CPU allowed for a case; seconds until SIGALRM ends it
MEMORY = 2 << 30  # bytes that a case may allocate beyond the valid inputs
WORDS = [
    b"",
    b"0",
    b"-1",
    b"1e999",
    b"nan",
    b"99999999999999999999",
    b"(" * 300,
    b"**9**9",
    b"\x00",
    b"\xff\xfe",
    b"\n",
    b" ",
    b"'",
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"&a *a",
    b"!!python/none",
    b"<<: *a",
    "é☃".encode(),
    b"../" * 9,
    b"%s%n",
    b"u",
    b"dif(",
    b"=",
    b'Lattice="',
    b"Properties=",
    b"true",
    b"null",
    b"1e-400",
    b"0x10",
    b"2147483648",
    b"-9223372036854775809",
]

MARK = "executed"
"""Folder that the code in `CODE` would make in the current folder, were it executed."""
CODE = [
    b"!!python/object/apply:os.mkdir [executed]",
    b"!!python/object/new:os.mkdir ['executed']",
    b"__import__('os').mkdir('executed')",
    b"cos\nmkdir\n(S'executed'\ntR.",  # a pickle
    b"\x80\x04\x8c\x02os\x8c\x05mkdir\x93\x8c\x08executed\x85R.",
    b"{{ self.__init__.__globals__.os.mkdir('executed') }}",
    b"os:mkdir",
    b"$(mkdir executed)",
    b"`mkdir executed`",
    b"; mkdir executed ;",
    b"| mkdir executed",
]


@dataclass(frozen=True)
class Parser:
    """A parser of one file, with valid files.

    Attributes:
        seeds: writes valid files to a scratch folder and returns their contents.
        parse: reads a file; its result is compared if `checked`.
        suffix: of the file.
        checked: a checksum protects the contents: a damaged file is refused, or has the value of
            a valid one.
    """

    seeds: Callable[[Path], list[bytes]]
    parse: Callable[[Path], object]
    suffix: str = ".txt"
    checked: bool = False


@dataclass(frozen=True)
class FolderParser:
    """A parser of a folder, of which one file is damaged at a time.

    Attributes:
        make: writes a valid folder into a scratch folder and returns it.
        parse: reads the folder.
        pattern: files that are damaged.
        checked: as in `Parser`.
    """

    make: Callable[[Path], Path]
    parse: Callable[[Path], object]
    pattern: str = "**/*"
    checked: bool = False


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return data after one to four seeded changes: of bits, bytes, words, lengths or order.

    One of eight receives code as well.
    """
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        # Headers are what a parser believes, hence half of the changes are near the beginning.
        end = max(1, len(out) if rng.random() < 0.5 else min(len(out), 512))
        at = rng.randrange(end)
        kind = rng.randrange(7)
        if kind == 0 and out:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and out:
            out[at : at + rng.choice((1, 2, 4, 8))] = rng.choice((b"\x00", b"\xff", b"\x7f")) * 4
        elif kind == 2:
            out[at:at] = rng.choice(WORDS)
        elif kind == 3:
            out[at : at + rng.randint(1, 12)] = rng.choice(WORDS)
        elif kind == 4:
            del out[at:]
        elif kind == 5:
            del out[at : at + rng.randint(1, 64)]
        else:
            start = rng.randrange(max(1, len(out)))
            out[at:at] = out[start : start + rng.randint(1, 64)]
    if rng.random() < 0.125:
        at = rng.randrange(len(out) + 1)
        out[at : at + rng.choice((0, 4, 40))] = rng.choice(CODE)
    return bytes(out)


def cases(parser: Parser | FolderParser, name: str, count: int, first: int = 0) -> None:
    """Print a JSON row for each case that ended otherwise than parsed or refused."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        os.chdir(scratch)
        if isinstance(parser, Parser):
            path = folder / f"case{parser.suffix}"
            inputs = [(path, path, data) for data in parser.seeds(folder)]
        else:
            root = parser.make(folder)
            files = sorted(p for p in root.glob(parser.pattern) if p.is_file())
            inputs = [(root, path, path.read_bytes()) for path in files]
        assert inputs, "no valid input"
        valid = []
        for root, path, data in inputs:
            path.write_bytes(data)
            valid.append(parser.parse(root))
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for number in range(first, first + count):
            rng = random.Random(f"{name} {number}")
            root, path, data = rng.choice(inputs)
            path.write_bytes(damaged(data, rng))
            print(json.dumps({"started": number, "file": path.name}), flush=True)
            signal.alarm(HANG)  # its default action ends the process, also within a C library
            faulthandler.dump_traceback_later(0.8 * HANG)  # says where
            started = time.process_time()
            try:
                found = parser.parse(root)
                if parser.checked and found not in valid:
                    print(json.dumps({"case": number, "value": str(found)[:200]}), flush=True)
            except ScitoolkitError:
                pass
            except Exception as error:
                row = {"case": number, "raised": type(error).__name__, "text": str(error)[:200]}
                print(json.dumps(row), flush=True)
            signal.alarm(0)
            faulthandler.cancel_dump_traceback_later()
            if os.path.lexists(MARK):
                print(json.dumps({"case": number, "executed": path.name}), flush=True)
                os.rmdir(MARK)
            taken = time.process_time() - started
            if taken > LONGEST:
                print(json.dumps({"case": number, "seconds": round(taken, 1)}), flush=True)
            path.write_bytes(data)
    print(json.dumps({"cases": count}), flush=True)

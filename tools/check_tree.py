# SPDX-License-Identifier: Apache-2.0
"""Check rules that no other tool checks, for every file that git tracks or would track.

    python tools/check_tree.py

No source file is longer than 450 lines, each begins with its SPDX line, none contains a mark of unfinished work or a
path of the developer's machine, and no file is larger than 200 KB.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 450
MAX_BYTES = 200 * 1024
SOURCES = {".c", ".cc", ".cmake", ".go", ".h", ".java", ".proto", ".py", ".sh"}
# The C ABI is one header that mostly contains documentation.
LONG = {"libprocessor/include/processor/processor.h"}
_COMMON_FOLDERS = {"/", "//", "/home/", "/mnt/", "/opt/", "/srv/", "/tmp/", "/var/tmp/"}

_SPDX = "SPDX-License-Identifier: Apache-2.0"
# Written in pieces, so that this file does not contain the marks that it looks for.
_WORDS = ("TO" + "DO", "FIX" + "ME", "XX" + "X", "raise " + "NotImplementedError")
_UNFINISHED = re.compile(rf"\b(?:{'|'.join(_WORDS)})\b")


def tracked_files() -> list[Path]:
    """List the files that git tracks or would track if all were added."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    names = [name for name in answer.stdout.decode().split("\0") if name]
    return [ROOT / name for name in sorted(set(names)) if (ROOT / name).is_file()]


def faults(path: Path, root: Path = ROOT) -> Iterator[str]:
    """Yield a sentence for each fault of a file."""
    name = str(path.relative_to(root))
    size = path.stat().st_size
    if size > MAX_BYTES:
        yield f"{name}: {size} bytes, expected at most {MAX_BYTES}"
        return
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    for place in {f"{root}/", f"{root.parent}/", f"{Path.home()}/"} - _COMMON_FOLDERS:
        if place in text:
            yield f"{name}: {place} found, expected no path of this machine"
    if path.suffix not in SOURCES:
        return
    lines = text.splitlines()
    if len(lines) > MAX_LINES and name not in LONG:
        yield f"{name}: {len(lines)} lines, expected at most {MAX_LINES}"
    if not any(_SPDX in line for line in lines[:2]):
        yield f"{name}: no line '{_SPDX}', expected it first"
    for number, line in enumerate(lines, 1):
        found = _UNFINISHED.search(line)
        if found:
            yield f"{name}:{number}: {found.group()} found, expected finished work"


def main() -> int:
    found = [fault for path in tracked_files() for fault in faults(path)]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Read what a process that serves live models adds to the memory of its machine."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

__all__ = ["footprint", "sum_mappings"]

_HEAD = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ (\d+) *(.*)$")
_LIBRARY = re.compile(r"\.so(\.[0-9.]+)?$")


def footprint(pid: int) -> dict[str, int]:
    """Return the memory of a process [bytes]; page cache that it does not map is not in it.

    Returns
    -------
    memory : dict
        `total`; of it `anonymous`, `libraries`, and `files`, which are the mapped pages of all other files.
    """
    return sum_mappings(Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8", errors="replace").splitlines())


def sum_mappings(lines: Iterable[str]) -> dict[str, int]:
    """Add up the mappings of /proc/PID/smaps.

    Notes
    -----
    A table is mapped several times in a process; `Pss` counts each of its pages once. Pages of libraries count in full,
    because otherwise every other process that uses them would change the result.
    """
    found = {"anonymous": 0, "libraries": 0, "files": 0}
    of_file = of_library = False
    resident = proportional = 0
    for line in lines:
        if head := _HEAD.match(line):
            of_file, of_library = head[1] != "0", bool(_LIBRARY.search(head[2]))
            continue
        name, _, value = line.partition(":")
        if name not in ("Rss", "Pss", "Anonymous"):
            continue
        size = int(value.split()[0]) * 1024
        if name == "Rss":
            resident = size
        elif name == "Pss":
            proportional = size
        else:
            # The last of the three.
            found["anonymous"] += size
            if of_file:
                counted = resident if of_library else proportional
                found["libraries" if of_library else "files"] += max(0, counted - size)
    return {"total": sum(found.values())} | found

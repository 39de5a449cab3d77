# SPDX-License-Identifier: Apache-2.0
"""Read the memory of processes."""

from pathlib import Path


def memory_of(pid: int | str = "self") -> dict[str, int]:
    """Return the memory of a process [bytes]: all resident memory, and its part that is not backed by a file."""
    found = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]:
        name, value = line.split(":")
        found[name] = int(value.split()[0]) * 1024
    return {"resident": found["Rss"], "anonymous": found["Anonymous"]}

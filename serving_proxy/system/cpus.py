# SPDX-License-Identifier: Apache-2.0
"""Lists of CPUs in the format of the kernel and `taskset`: `0-3,8`."""

from __future__ import annotations

import os

from serving_proxy.errors import InvalidError

_MOST = 65536


def parse_cpus(text: str, named: str) -> set[int]:
    """Read a list of CPUs.

    Raises
    ------
    InvalidError
        It is not a list of CPUs, or names a CPU that this process may not use.
    """
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise InvalidError(f"{named}: '{text}', expected CPUs such as 0-3,8")
        low, high = int(first), int(last or first)
        if high < low or high >= _MOST:
            raise InvalidError(f"{named}: '{text}', expected CPUs such as 0-3,8")
        found |= set(range(low, high + 1))
    # Not all CPUs of the machine: a container or taskset may leave fewer.
    there = os.sched_getaffinity(0)
    if not found <= there:
        raise InvalidError(f"{named}: CPUs {format_cpus(found - there)}, expected some of {format_cpus(there)}")
    return found


def read_cpus(text: str) -> set[int]:
    """Read a list of CPUs from another program; return an empty set if it is not such a list."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if first.isdecimal() and (not dash or last.isdecimal()) and int(last or first) < _MOST:
            found |= set(range(int(first), int(last or first) + 1))
    return found


def format_cpus(cpus: set[int]) -> str:
    """Return a list of CPUs as text: `0-3,8`."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and parts[-1][-1] == cpu - 1:
            parts[-1].append(cpu)
        else:
            parts.append([cpu])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)

# SPDX-License-Identifier: Apache-2.0
"""Lists of CPUs as the kernel and `taskset` write them: `0-3,8`."""

from __future__ import annotations

import os

from serving_proxy.errors import InvalidError

_MOST = 65536


def parse_cpus(text: str, named: str) -> set[int]:
    """Read a list of CPUs.

    Raises
    ------
    InvalidError
        It is none, or names a CPU that this process may not use.
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
    # Not all that the machine has: a container or taskset may leave fewer.
    there = os.sched_getaffinity(0)
    if not found <= there:
        raise InvalidError(f"{named}: CPUs {format_cpus(found - there)}, expected some of {format_cpus(there)}")
    return found


def read_cpus(text: str) -> set[int]:
    """Read a list of CPUs that somebody else has written; what is not one counts as empty."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if first.isdecimal() and (not dash or last.isdecimal()) and int(last or first) < _MOST:
            found |= set(range(int(first), int(last or first) + 1))
    return found


def format_cpus(cpus: set[int]) -> str:
    """Write a list of CPUs: `0-3,8`."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and parts[-1][-1] == cpu - 1:
            parts[-1].append(cpu)
        else:
            parts.append([cpu])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)

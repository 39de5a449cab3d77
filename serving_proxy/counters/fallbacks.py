# SPDX-License-Identifier: Apache-2.0
"""Notice versions that compute in more precise arithmetic than before, because a check has failed."""

from __future__ import annotations

from collections.abc import Iterable

from serving_proxy.counters.stats_file import Key, fallback_of
from serving_proxy.records.hosts import HostSeen


class Fallbacks:
    """Remembers the precision that each version fell back to."""

    def __init__(self) -> None:
        self._known: dict[Key, str] = {}

    def step(self, hosts: Iterable[HostSeen], keys: Iterable[Key]) -> list[tuple[Key, str]]:
        """Return the versions that have fallen back since the last call, with the reason; hosts report the same."""
        running, known, found = [host for host in hosts if host.alive], {}, []
        for key in keys:
            for precision, reason in filter(None, (fallback_of(host.stats, *key) for host in running)):
                if key not in known and self._known.get(key) != precision:
                    found.append((key, reason))
                known[key] = precision
        self._known = known
        return found

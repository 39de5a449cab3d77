# SPDX-License-Identifier: Apache-2.0
"""Convert the hosts' counters to counts within a time window, across restarts and summed over hosts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from serving_proxy.counters.stats_file import Key, read_tallies
from serving_proxy.counters.tally import Tally
from serving_proxy.records.hosts import HostSeen

_NOTHING = Tally()
# Samples of a window: it moves in steps of a sixtieth of its length.
_SAMPLES = 60


@dataclass
class _Host:
    shown: tuple[Any, ...]
    last: dict[Key, Tally]
    showing: frozenset[Key]
    totals: dict[Key, Tally] = field(default_factory=dict)


class Totals:
    """Adds up the counts of all hosts since this object was made; the sums never decrease."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}

    def read(self, hosts: Iterable[HostSeen]) -> None:
        """Read the hosts' present counters."""
        for host in hosts:
            self.add(host.name, host.stats)

    def add(self, host: str, stats: Mapping[str, Any]) -> bool:
        """Read a host's present counters, and return whether they are new.

        Counts from before the host was first seen are left out, because their time is unknown. If a counter has
        decreased, the host was restarted or the version was loaded again: its counts start from 0.
        """
        before = self._hosts.get(host)
        shown = _change_mark(stats)
        if not stats or (before is not None and before.shown == shown):
            return False
        now = read_tallies(stats)
        if before is None:
            self._hosts[host] = _Host(shown, now, frozenset(now))
            return True
        for key, counted in now.items():
            earlier = before.last.get(key, _NOTHING)
            added = counted if counted.has_shrunk_since(earlier) else counted - earlier
            before.totals[key] = before.totals.get(key, _NOTHING) + added
        # Versions that are missing now may appear again, and then do not start from 0.
        self._hosts[host] = _Host(shown, before.last | now, frozenset(now), before.totals)
        return True

    def of(self, key: Key, host: str | None = None) -> Tally:
        """Return the counters of a version, of all hosts or of one."""
        if host is not None:
            return self._hosts[host].totals.get(key, _NOTHING) if host in self._hosts else _NOTHING
        return sum((host.totals[key] for host in self._hosts.values() if key in host.totals), _NOTHING)

    def keep(self, keys: set[Key]) -> None:
        """Forget all versions except these."""
        for host in self._hosts.values():
            host.totals = {key: total for key, total in host.totals.items() if key in keys}
            # Versions that a host still reports must not be counted from 0 if they are wanted again.
            host.last = {key: tally for key, tally in host.last.items() if key in keys or key in host.showing}


def _change_mark(stats: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return values that change whenever a host writes its statistics."""
    shadow = stats.get("shadow")
    return stats.get("time"), shadow.get("time") if isinstance(shadow, dict) else None


@dataclass
class Window:
    """The last seconds of a version's counters.

    Attributes
    ----------
    seconds : float [s]
    begins : float or None [s]
        Counts before this time are ignored; None once it has passed.
    """

    seconds: float
    begins: float | None = None
    _samples: deque[tuple[float, Tally]] = field(default_factory=deque)

    def add(self, now: float, total: Tally) -> Tally:
        """Add the counters of this moment, and return the counts within the window."""
        samples = self._samples
        if self.begins is not None and now < self.begins:
            samples.clear()
        else:
            self.begins = None
        if not samples or now - samples[-1][0] >= self.seconds / _SAMPLES:
            samples.append((now, total))
        # The oldest sample that is kept is at the window's start, or just before it.
        while len(samples) > 1 and samples[1][0] <= now - self.seconds:
            samples.popleft()
        return total - samples[0][1]

    def covered(self, now: float) -> float:
        """Return the time [s] for which the window has counters."""
        return min(self.seconds, now - self._samples[0][0]) if self._samples else 0.0

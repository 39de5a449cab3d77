# SPDX-License-Identifier: Apache-2.0
"""Figures of versions that follow timelines, from the reports of all hosts."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from serving_proxy.counters.stats_file import Key, live_state
from serving_proxy.records.hosts import HostSeen

# Rows per second are counted over this time: deltas may come seconds apart.
_SECONDS = 10.0


@dataclass(frozen=True)
class LiveFigures:
    """A version that follows a timeline, on all live hosts; hosts differ for moments only.

    Attributes
    ----------
    epoch, newest_epoch : int
        The smallest that a host serves, and the largest that a host has.
    held : bool
        A rollback holds it at its epoch.
    age_s : float or None [s]
        The largest time since the newest sample that the epoch knows of; None at the first epoch.
    rows_per_s : float [1/s]
        Rows that were changed or deleted, on the host with the most.
    overlay_bytes : int [bytes]
        Memory of changed rows, of all hosts.
    refused : int
        Refused deltas and other faults of the timeline, on the host with the most.
    error : str or None
        Why the newest attempt failed.
    """

    epoch: int
    newest_epoch: int
    held: bool
    age_s: float | None
    rows_per_s: float
    overlay_bytes: int
    refused: int
    error: str | None


@dataclass
class _Rows:
    """The changed rows of a version on one host, over the last seconds."""

    samples: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, now: float, rows: int) -> None:
        samples = self.samples
        if samples and (rows < samples[-1][1] or now < samples[-1][0]):
            # It was loaded again, or the clock was set back.
            samples.clear()
        samples.append((now, rows))
        while len(samples) > 1 and samples[1][0] <= now - _SECONDS:
            samples.popleft()

    @property
    def rate(self) -> float:
        (began, first), (ended, last) = self.samples[0], self.samples[-1]
        return (last - first) / (ended - began) if ended > began else 0.0


class LiveCounters:
    """Keeps the figures of every version that follows a timeline."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, Key], _Rows] = {}
        self.figures: dict[Key, LiveFigures] = {}

    def step(self, hosts: Iterable[HostSeen], keys: Iterable[Key], now: float | None = None) -> None:
        """Read what live hosts report of these versions."""
        now = time.time() if now is None else now
        running, rows, figures = [host for host in hosts if host.alive], {}, {}
        for key in keys:
            found = []
            for host in running:
                live = live_state(host.stats, *key)
                if live is not None:
                    rows[host.name, key] = counted = self._rows.get((host.name, key), _Rows())
                    counted.add(now, _count(live, "rows"))
                    found.append((live, counted.rate))
            if found:
                figures[key] = _summarize(found, now)
        self._rows, self.figures = rows, figures


def _summarize(found: list[tuple[dict[str, Any], float]], now: float) -> LiveFigures:
    lives = [live for live, _ in found]
    known = [_count(live, "knows_us") / 1e6 for live in lives if live.get("knows_us") is not None]
    return LiveFigures(
        epoch=min(_count(live, "epoch") for live in lives),
        newest_epoch=max(_count(live, "newest_epoch") for live in lives),
        held=any(bool(live.get("held")) for live in lives),
        age_s=max(0.0, now - min(known)) if known else None,
        rows_per_s=max(rate for _, rate in found),
        overlay_bytes=sum(_count(live, "overlay_bytes") for live in lives),
        refused=max(_count(live, "refused") for live in lives),
        error=next((str(live["error"]) for live in lives if live.get("error")), None),
    )


def _count(live: dict[str, Any], name: str) -> int:
    value = live.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0

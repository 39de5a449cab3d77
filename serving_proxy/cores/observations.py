# SPDX-License-Identifier: Apache-2.0
"""The controller's observations of a version, from the hosts' counters. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cost_model.control import Observation
from serving_proxy.counters.tally import Tally


@dataclass(frozen=True)
class Gauges:
    """Gauges of a version on all hosts: requests that wait, requests that wait or run, and requests per run."""

    queued: int = 0
    in_flight: int = 0
    per_run: float = 1.0


def read_gauges(stats: Iterable[Mapping[str, Any]]) -> dict[str, Gauges]:
    """Add up the gauges in several `stats.json`; invalid values count as 0."""
    found: dict[str, Gauges] = {}
    for stat in stats:
        for model, versions in _mapping(stat.get("models")).items():
            for number, entry in _mapping(_mapping(versions).get("versions")).items():
                name = f"{model}/{number}"
                before, entry = found.get(name, Gauges()), _mapping(entry)
                found[name] = Gauges(
                    before.queued + int(_number(entry.get("queued"))),
                    before.in_flight + int(_number(entry.get("in_flight"))),
                    max(before.per_run, _number(_mapping(entry.get("batch_requests")).get("mean"))),
                )
    return found


def observation(added: Tally, before: Gauges, now: Gauges, slo_ms: float) -> Observation:
    """Return the observation since the last reading.

    Parameters
    ----------
    added : Tally
        Counted since then.
    before, now : Gauges
    slo_ms : float [ms]
    """
    ended = added.requests + added.mirrored
    ran = max(0, round(added.run.count))
    sheds = sum(added.sheds.values())
    arrivals = max(0, max(ended, ran) + now.in_flight - before.in_flight)
    return Observation(
        arrivals=arrivals,
        completed=ran,
        sheds=sheds,
        missed=min(arrivals, added.latency.above(slo_ms * 1000) + sheds),
        queued=now.queued,
        in_flight=now.in_flight,
        # Each request of a batched run reports the time of the whole run.
        busy_us=max(0.0, added.run.sum) / now.per_run,
    )


def sum_observations(parts: Sequence[tuple[Observation, float]], elapsed_s: float) -> Observation:
    """Combine observations of hosts, each over a time of its own [s], into one over a common time [s]."""

    def total(value: Callable[[Observation], float]) -> float:
        return sum(value(part) * elapsed_s / own_s for part, own_s in parts)

    return Observation(
        arrivals=round(total(lambda part: part.arrivals)),
        completed=round(total(lambda part: part.completed)),
        sheds=round(total(lambda part: part.sheds)),
        missed=round(total(lambda part: part.missed)),
        queued=sum(part.queued for part, _ in parts),
        in_flight=sum(part.in_flight for part, _ in parts),
        busy_us=total(lambda part: part.busy_us),
    )


def within_cores(
    seen: Mapping[str, Observation], groups: Iterable[tuple[Iterable[str], int]], elapsed_s: float
) -> dict[str, Observation]:
    """Limit the busy time to the core time that was available: requests that take turns on a core each count the time
    of all.

    Parameters
    ----------
    seen : mapping of name to Observation
    groups : iterable of (names, cores)
    elapsed_s : float [s]
    """
    found = dict(seen)
    for names, cores in groups:
        here = [name for name in names if name in found]
        busy = sum(found[name].busy_us for name in here)
        most = cores * elapsed_s * 1e6
        if cores and busy > most:
            for name in here:
                found[name] = replace(found[name], busy_us=found[name].busy_us * most / busy)
    return found


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return max(0.0, float(value)) if good else 0.0

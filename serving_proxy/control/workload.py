# SPDX-License-Identifier: Apache-2.0
"""A workload file of `cost-model place` from what the proxy has measured. A pure function.

A model is one entry with the requests, the mean service time and the memory of all its versions, because the versions
that share its requests are on the same machines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from serving_proxy.cores.observations import read_gauges
from serving_proxy.cores.planning import UNKNOWN_CV
from serving_proxy.cores.tenants import DEFAULT_SLO_MS
from serving_proxy.counters.history import PERIOD_S, Point
from serving_proxy.counters.stats_file import Key
from serving_proxy.counters.tally import Tally
from serving_proxy.records.hosts import HostSeen
from serving_proxy.records.models import Model
from serving_proxy.records.view import View

# Rates are means of this time.
_MEAN_S = 30.0
_UNKNOWN_US = 1000.0


class WorkloadView(View):
    """A workload file, and what it does not know."""

    workload: dict[str, Any]
    notes: list[str]


def measured_workload(
    models: Mapping[str, Model],
    hosts: Sequence[HostSeen],
    lines: Mapping[Key, Sequence[Point]],
    counted: Callable[[Key], Tally],
) -> WorkloadView:
    """Return the deployed models with their highest rates of the last minutes.

    Parameters
    ----------
    models : mapping of str to Model
    hosts : sequence of HostSeen
    lines : mapping of (model, version) to points
        Rates over time.
    counted : callable
        Returns the counters of a version since the proxy began.
    """
    gauges = read_gauges(host.stats for host in hosts if host.alive)
    entries, notes = [], []
    for name, model in sorted(models.items()):
        numbers = [number for number, version in model.versions.items() if version.desired]
        if model.baseline not in numbers:
            continue
        runs = busy_us = 0.0
        for number in numbers:
            run, gauge = counted((name, number)).run, gauges.get(f"{name}/{number}")
            runs += run.count
            # Each request of a batched run reports the time of the whole run.
            busy_us += run.sum / (1.0 if gauge is None else max(1.0, gauge.per_run))
        slos = [model.versions[number].slo_p99_ms for number in numbers]
        given = [slo for slo in slos if slo is not None]
        if not runs:
            notes.append(f"{name}: no requests yet, so {_UNKNOWN_US / 1000:g} ms each are assumed")
        if not given:
            notes.append(f"{name}: was deployed without --slo-p99-ms, so {DEFAULT_SLO_MS:g} ms are assumed")
        entries.append(
            {
                "name": name,
                "role": "baseline",
                "qps": _highest_rate([lines.get((name, number), ()) for number in numbers]),
                "fixed_us": round(busy_us / runs, 1) if runs else _UNKNOWN_US,
                "per_row_us": 0,
                "cv": UNKNOWN_CV,
                "rows": {"constant": 1},
                "slo_p99_ms": min(given, default=DEFAULT_SLO_MS),
                "memory_gb": round(sum(_memory(hosts, name, number) for number in numbers) / 1e9, 6),
            }
        )
    return WorkloadView(workload={"models": entries}, notes=notes)


def _highest_rate(lines: Sequence[Sequence[Point]]) -> float:
    """Return the highest mean rate of a model [requests/s], the sum of the rates of its versions."""
    rates: dict[float, float] = {}
    for line in lines:
        for at, rate, *_ in line:
            rates[at] = rates.get(at, 0.0) + rate
    values = [rate for _, rate in sorted(rates.items())]
    length = min(len(values), round(_MEAN_S / PERIOD_S))
    means = [sum(values[end - length : end]) / length for end in range(length, len(values) + 1)] if length else []
    return round(max(means, default=0.0), 3)


def _memory(hosts: Sequence[HostSeen], name: str, number: int) -> float:
    """Return the memory of a version on the host where it needs the most [bytes]."""
    seen = [host.models.get(name, {}).get(number) for host in hosts if host.alive]
    found = [version.details.get("memory_bytes") for version in seen if version is not None]
    return max((float(size) for size in found if isinstance(size, int)), default=0.0)

# SPDX-License-Identifier: Apache-2.0
"""How many replicas are needed: a given number, or as many as the planner wants for the present traffic."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cost_model.interference import default_interference
from cost_model.planning.sizing import Sizing
from cost_model.queueing import Member
from cost_model.service import RowDistribution, ServiceTime
from cost_model.workload import Tenant
from serving_proxy.cores.observations import read_gauges
from serving_proxy.cores.planning import UNKNOWN_CV
from serving_proxy.cores.tenants import DeployedTenant, tenants
from serving_proxy.counters.tally import Tally
from serving_proxy.counters.windows import Totals
from serving_proxy.deploy.control import Control
from serving_proxy.errors import ProxyError
from serving_proxy.records.hosts import HostSeen
from serving_proxy.replicas.loop import ReplicaOptions
from serving_proxy.store import Repository

# New replicas take a while to start, in which traffic grows.
HEADROOM = 1.25
# The number falls only if fewer have been enough for this time.
KEPT_S = 300.0
_WINDOW_S = 30.0
_STEP_S = 5.0
_SETTING = "replicas"
# Less work than this says nothing about service times.
_LEAST_RUNS = 20


@dataclass(frozen=True)
class Sample:
    """Counters at one time: of versions, and the CPU time of replicas [s]."""

    at: float
    tallies: Mapping[str, Tally]
    cpu_s: Mapping[str, float]


@dataclass(frozen=True)
class Load:
    """The traffic of a version over all replicas.

    Attributes
    ----------
    rate : float [requests/s]
    service_us : float [us]
        Mean CPU time of a request, with its share of what the host does besides running models.
    """

    tenant: DeployedTenant
    rate: float
    service_us: float


def replicas_for(loads: Sequence[Load], cores: int, least: int, most: int) -> tuple[int, str]:
    """Return how many replicas meet all SLOs, also while one of them is missing, and why.

    Every replica has all models; its requests share all of its cores, and clients divide requests evenly.

    Parameters
    ----------
    loads : sequence of Load
    cores : int
        CPUs of a replica.
    least, most : int
        Limits of the number.
    """
    busy = [load for load in loads if load.rate > 0]
    if not busy:
        return least, "no requests"
    members = [
        Member(
            Tenant(
                load.tenant.name,
                load.tenant.role,
                ServiceTime(max(load.service_us, 1.0), 0.0, UNKNOWN_CV),
                RowDistribution.constant(1),
                load.tenant.slo_ms,
                qps=load.rate,
            ),
            load.rate * HEADROOM,
        )
        for load in busy
    ]
    sizing = Sizing(members, default_interference(), 1.0, cores)
    text = f"{sum(load.rate for load in busy):.0f} requests/s keep {sizing.load / HEADROOM:.2f} cores busy"
    for count in range(least, most + 1):
        if sizing.meets(cores, 1 / max(1, count - 1)):
            return count, text
    return most, f"{text}, which needs more than {most} replicas"


class PlannedScale:
    """Follows the traffic: grows at once, and shrinks when fewer replicas have been enough for five minutes.

    Parameters
    ----------
    versions : callable
        Returns the versions that may get requests.
    totals : Totals
        Counters of all hosts.
    statistics : callable
        Returns the newest `stats.json` of each host.
    loads : callable
        Returns whether a host is loading a version.
    cores : int
        CPUs of a replica.
    limits : (int, int)
        Least and largest number of replicas.
    before : int
        The number before this proxy began; it counts like one that was needed then.
    clock : callable
        Returns seconds.
    """

    def __init__(
        self,
        versions: Callable[[], Sequence[DeployedTenant]],
        totals: Totals,
        statistics: Callable[[], Iterable[Mapping[str, Any]]],
        loads: Callable[[], bool],
        cores: int,
        limits: tuple[int, int],
        before: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._versions, self._totals, self._cores, self._clock = versions, totals, cores, clock
        self._statistics, self._loads = statistics, loads
        self._least, self._most = limits
        now = clock()
        self._needs: deque[tuple[float, int]] = deque([(now, min(max(before, self._least), self._most))])
        self._samples: deque[Sample] = deque()
        self._reason = "no requests have been counted yet"

    def wanted(self, cpu_s: Mapping[str, float]) -> tuple[int, str]:
        """Return the number, and the reason."""
        now = self._clock()
        if not self._samples or now - self._samples[-1].at >= _STEP_S:
            self._step(now, cpu_s)
        while len(self._needs) > 1 and now - self._needs[0][0] > KEPT_S:
            self._needs.popleft()
        return max(count for _, count in self._needs), f"auto: {self._reason}"

    def _step(self, now: float, cpu_s: Mapping[str, float]) -> None:
        versions = self._versions()
        tallies = {one.name: self._totals.of((one.model, one.version)) for one in versions}
        if self._loads():
            # What loading and warming up cost says nothing about requests.
            cpu_s = {}
            self._samples = deque(replace(sample, cpu_s={}) for sample in self._samples)
        self._samples.append(Sample(now, tallies, dict(cpu_s)))
        while len(self._samples) > 2 and now - self._samples[1].at >= _WINDOW_S:
            self._samples.popleft()
        # A version is counted from the first reading that has it.
        first = next(sample for sample in self._samples if tallies.keys() <= sample.tallies.keys())
        if now - first.at < _STEP_S:
            return
        per_run = {name: gauges.per_run for name, gauges in read_gauges(self._statistics()).items()}
        loads = loads_between(versions, first, self._samples[-1], per_run)
        count, self._reason = replicas_for(loads, self._cores, self._least, self._most)
        self._needs.append((now, count))


def loads_between(
    versions: Iterable[DeployedTenant], before: Sample, after: Sample, per_run: Mapping[str, float]
) -> list[Load]:
    """Return the load of each version between two readings, without those of too few requests.

    Hosts count the time in which models run. Their other work, such as reading requests, is more than that for small
    models; each request gets the same share of it.

    Parameters
    ----------
    versions, before, after
    per_run : mapping of str to float
        Requests per run of a version; each request of a batched run reports the time of the whole run.
    """
    elapsed_s = after.at - before.at
    found = []
    for one in (version for version in versions if version.name in before.tallies):
        added = after.tallies[one.name] - before.tallies[one.name]
        arrivals = max(added.requests + added.mirrored, round(added.run.count)) + sum(added.sheds.values())
        if added.run.count >= _LEAST_RUNS:
            mean_us = added.run.sum / added.run.count / per_run.get(one.name, 1.0)
            found.append(Load(one, arrivals / elapsed_s, mean_us))
    rate = sum(load.rate for load in found)
    used = [after.cpu_s[name] - before.cpu_s[name] for name in after.cpu_s.keys() & before.cpu_s.keys()]
    busy = sum(max(0.0, seconds) for seconds in used) / elapsed_s
    rest_us = max(0.0, busy - sum(load.rate * load.service_us / 1e6 for load in found)) / rate * 1e6 if rate else 0.0
    return [replace(load, service_us=load.service_us + rest_us) for load in found]


def _is_loading(host: HostSeen) -> bool:
    states = {version.state for versions in host.models.values() for version in versions.values()}
    return host.alive and bool(states & {"loading", "warming"})


@dataclass(frozen=True)
class FixedScale:
    """The number that the operator has given."""

    count: int

    def wanted(self, cpu_s: Mapping[str, float]) -> tuple[int, str]:
        """Return the number, and the reason."""
        return self.count, "--replicas"


class StoredScale:
    """Remembers the number for the next proxy, which has not counted any requests when it begins."""

    def __init__(self, repository: Repository, scale: PlannedScale) -> None:
        self._repository, self._scale = repository, scale
        self._stored: int | None = None

    def wanted(self, cpu_s: Mapping[str, float]) -> tuple[int, str]:
        """Return the number, and the reason."""
        count, reason = self._scale.wanted(cpu_s)
        if count != self._stored:
            with contextlib.suppress(ProxyError):
                self._repository.set_setting(_SETTING, count)
                self._stored = count
        return count, reason


def make_scale(control: Control, totals: Totals, options: ReplicaOptions) -> FixedScale | StoredScale:
    """Return what says how many replicas are wanted."""
    least, most = options.limits
    if least == most:
        return FixedScale(least)
    stored = control.repository.setting(_SETTING)
    before = stored if isinstance(stored, int) else 0
    planned = PlannedScale(
        lambda: tenants(control.models),
        totals,
        lambda: [host.stats for host in control.hosts if host.alive],
        lambda: any(map(_is_loading, control.hosts)),
        int(options.spec["cores"]),
        options.limits,
        before,
    )
    return StoredScale(control.repository, planned)

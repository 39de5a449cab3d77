# SPDX-License-Identifier: Apache-2.0
"""The requests of versions between two readings, each host by its own clock.

Hosts write their counters once a second, each at its own time. The sum over several hosts, divided by the time between
two readings, is not a rate: a reading may contain two seconds of one host and none of another. So each host's counts
are divided by the time between its own statistics, and the rates are added up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cost_model.control import Observation
from serving_proxy.cores.observations import Gauges, observation, read_gauges, sum_observations
from serving_proxy.cores.tenants import DeployedTenant
from serving_proxy.counters.stats_file import Key
from serving_proxy.counters.tally import Tally
from serving_proxy.records.hosts import HostSeen

# A host whose statistics are older than the newest by more than this is not waited for.
PATIENCE_S = 3.0

Counted = Callable[[Key, str], Tally]
"""Returns the counters of a version on a host."""


@dataclass(frozen=True)
class _Mark:
    """The counters of a host at a time [s]."""

    at: float
    counted: dict[str, Tally]
    gauges: dict[str, Gauges]


class Meter:
    """Remembers the hosts' counters of the last reading."""

    def __init__(self) -> None:
        self._marks: dict[str, _Mark] = {}

    def due(self, hosts: Sequence[HostSeen]) -> bool:
        """Return whether every host has counted since the last reading, except hosts that are late."""
        newest = max((host.counted_at for host in hosts), default=0.0)
        fresh = [self._is_fresh(host) for host in hosts]
        late = [newest - host.counted_at > PATIENCE_S for host in hosts]
        return any(fresh) and all(new or old for new, old in zip(fresh, late, strict=True))

    def read(
        self, hosts: Sequence[HostSeen], tenants: Sequence[DeployedTenant], counted: Counted
    ) -> tuple[dict[str, Observation], float]:
        """Return the requests of each version since the last reading, and the time [s] that they cover; 0 if that is
        unknown.

        Parameters
        ----------
        hosts : sequence of HostSeen
            The live hosts.
        tenants : sequence of DeployedTenant
        counted : callable
        """
        parts: dict[str, list[tuple[Observation, float]]] = {}
        passed = []
        marks = {host.name: self._marks[host.name] for host in hosts if host.name in self._marks}
        for host in (live for live in hosts if self._is_fresh(live)):
            gauges = read_gauges([host.stats])
            totals = {tenant.name: counted((tenant.model, tenant.version), host.name) for tenant in tenants}
            before, marks[host.name] = marks.get(host.name), _Mark(host.counted_at, totals, gauges)
            elapsed_s = 0.0 if before is None else host.counted_at - before.at
            # If the clock was set back, the time that has passed is unknown.
            if before is None or elapsed_s <= 0:
                continue
            passed.append(elapsed_s)
            for tenant in tenants:
                if tenant.name in before.counted:
                    was, now = (found.get(tenant.name, Gauges()) for found in (before.gauges, gauges))
                    seen = observation(totals[tenant.name] - before.counted[tenant.name], was, now, tenant.slo_ms)
                    parts.setdefault(tenant.name, []).append((seen, elapsed_s))
        self._marks = marks
        if not passed:
            return {}, 0.0
        usual_s = sum(passed) / len(passed)
        return {name: sum_observations(observations, usual_s) for name, observations in parts.items()}, usual_s

    def _is_fresh(self, host: HostSeen) -> bool:
        mark = self._marks.get(host.name)
        return bool(host.stats) and (mark is None or host.counted_at != mark.at)

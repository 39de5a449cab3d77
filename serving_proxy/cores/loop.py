# SPDX-License-Identifier: Apache-2.0
"""The loop that divides cores: after each update of the hosts' counters, give versions their CPUs.

Its decisions are in `desired.json` and in the store. If the loop fails, or the proxy ends, hosts continue with the last
decision.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from typing import Any

from cost_model.control import Move
from cost_model.machine import Machine, this_machine
from serving_proxy.cores import Allocator, DeployedTenant, manual_cpus, tenants
from serving_proxy.cores.layout import intermediate_layout, to_cpus
from serving_proxy.cores.limits import Limit, changes, for_each_host
from serving_proxy.cores.meter import Meter
from serving_proxy.cores.profiles import Profiles
from serving_proxy.counters.windows import Totals
from serving_proxy.deploy.control import Control
from serving_proxy.errors import PreconditionError
from serving_proxy.records.hosts import HostSeen
from serving_proxy.records.models import Note
from serving_proxy.system.cpus import format_cpus, read_cpus

log = logging.getLogger("serving_proxy.cores")

PERIOD_S = 1.0
# Check this often for new counters, so that they are used soon; run two steps at least this far apart.
_LOOK_S, _LEAST_S = 0.2, 0.5
_PROFILES_S = 5.0
_STORED = "cores"
_KEEP_EVERY_S = 60.0


class Cores:
    """Divides the hosts' cores among versions.

    Attributes
    ----------
    allocator : Allocator or None
        None: cores are not divided.
    profiles : Profiles
        The profiles that the planner uses.
    """

    def __init__(self, control: Control, totals: Totals, profiles: Profiles) -> None:
        self._control = control
        self._totals = totals
        self.allocator: Allocator | None = None
        self.profiles = profiles
        self._in_force: dict[str, str] = {}
        self._limits: dict[str, Limit] = {}
        self._kept: Any = None
        self._kept_at = 0.0
        self._notes: list[Note] = []
        self._meter = Meter()
        mode = control.options.cores
        if mode == "off":
            return
        stored = control.repository.setting(_STORED) or {}
        self.allocator = Allocator(mode, stored.get("learnt"))
        # Restore the layout of the previous proxy: adopted hosts have it already, and new hosts load with it.
        kept = {str(name): str(cpus) for name, cpus in stored.get("cpusets", {}).items()}
        if all(read_cpus(cpus) <= control.options.cpus for cpus in kept.values()):
            self._in_force = kept
            hosts = [str(host) for host in stored.get("hosts", [])]
            # In mode `plan`, nothing would lift the limits again.
            limits = stored.get("limits", {}) if mode == "control" else {}
            for name, most in limits.items():
                self._limits[str(name)] = Limit(int(most), "as before the restart of the proxy")
            self.allocator.limits = dict(self._limits)
            control.pin({host: dict(kept) for host in hosts}, for_each_host(self._limits, len(hosts)))

    async def run(self) -> None:
        """Run a step once a second, and when hosts have counted, until the task is cancelled."""
        looked_at = -math.inf
        if self.allocator is not None:
            # The restored layout is in force until then; storage that hangs must not delay the plan.
            await self.profiles.wait_for_first_refresh(_PROFILES_S)
        while self.allocator is not None:
            with self._control.recording_faults("cores"):
                passed = time.monotonic() - looked_at
                if passed >= (_LEAST_S if self._meter.due(self._live_hosts()) else PERIOD_S):
                    looked_at = time.monotonic()
                    self.step()
            await asyncio.sleep(_LOOK_S)

    def step(self, now: float | None = None) -> None:
        """Plan if the deployed versions have changed, read the counters, and give versions their CPUs."""
        now = time.monotonic() if now is None else now
        live = self._live_hosts()
        if self.allocator is None or not live:
            return
        there = tenants(self._control.models)
        if there:
            machine, apart = self._machine(live)
            profiles = {tenant.name: found.table for tenant in there if (found := self.profiles.of(tenant)) is not None}
            moves = self.allocator.deploy(there, machine, profiles, now, apart)
            self._note(moves, machine)
            try:
                self._note(self._observe(there, live, now), machine)
            finally:
                # The plan is applied even if reading the counters fails.
                self._apply(len(live), now)
        else:
            self.allocator.stop()
            self._apply(len(live), now)

    def _observe(self, there: Sequence[DeployedTenant], live: Sequence[HostSeen], now: float) -> tuple[Move, ...]:
        """Pass the hosts' new counters to the allocator; without new counters there are no moves."""
        if self.allocator is None or not self._meter.due(live):
            return ()
        self._totals.read(self._control.hosts)
        seen, elapsed_s = self._meter.read(live, there, self._totals.of)
        return self.allocator.observe(seen, now, elapsed_s) if elapsed_s else ()

    def _live_hosts(self) -> list[HostSeen]:
        return [host for host in self._control.hosts if host.alive and host.cpus and host.state != "draining"]

    def _machine(self, live: Sequence[HostSeen]) -> tuple[Machine, bool]:
        """Return the cores that can be divided, and whether operators have given other cores to versions."""
        sets = {format_cpus(read_cpus(host.cpus)) for host in live}
        if len(sets) != 1:
            raise PreconditionError(f"hosts: CPUs {' and '.join(sorted(sets))}, expected the same on each")
        cpus = read_cpus(sets.pop())
        free = cpus - manual_cpus(self._control.models)
        # If operators have given away all CPUs, the other versions share them as before.
        return machine_of(frozenset(free or cpus)), bool(free) and free != cpus

    def _apply(self, live: int, now: float) -> None:
        """Store the decision, then apply it; versions that grow get CPUs a second before others lose them."""
        assert self.allocator is not None
        # Include hosts that are down: when they start again, they load with the CPUs of the others.
        hosts = [host.name for host in self._control.hosts]
        wanted = self.allocator.cpusets
        next_step = intermediate_layout(self._in_force, wanted)
        chosen = wanted if next_step is None else next_step
        limits = for_each_host(self.allocator.limits, live)
        most = {name: limit.most for name, limit in self.allocator.limits.items()}
        kept = {"hosts": sorted(hosts), "cpusets": wanted, "limits": most, "learnt": self.allocator.to_json()}
        cpusets = {host: dict(chosen) for host in hosts} if chosen else {}
        before = self._control.host_settings
        changed = cpusets != before.cpusets or limits != before.limits
        if changed or (kept != self._kept and now - self._kept_at >= _KEEP_EVERY_S):
            self._control.repository.set_setting(_STORED, kept)
            self._kept, self._kept_at = kept, now
        if changed:
            self._control.pin(cpusets, limits)
            self._in_force = chosen
        self._note_limits()
        if self._notes:
            self._control.store([], self._notes)
            self._notes = []

    def _note(self, moves: Sequence[Move], machine: Machine) -> None:
        assert self.allocator is not None
        pools = {pool.name: pool for pool in self.allocator.pools}
        for move in moves:
            names = pools[move.pool].models if move.pool in pools else ()
            before, after = (to_cpus(cores, machine) or "none" for cores in _existing_cores(move, machine))
            models = {name.rpartition("/")[0] for name in names}
            data = {"pool": move.pool, "versions": list(names), "before": before, "after": after, "reason": move.reason}
            self._notes.append(
                Note(
                    kind="cores",
                    message=f"{move.pool}: CPUs {after} instead of {before}; {move.reason}",
                    model=models.pop() if len(models) == 1 else None,
                    version=int(names[0].rpartition("/")[2]) if len(names) == 1 else None,
                    data=data,
                )
            )

    def _note_limits(self) -> None:
        assert self.allocator is not None
        before, self._limits = self._limits, self.allocator.limits
        for name, what in changes(before, self._limits).items():
            model, _, number = name.rpartition("/")
            limit = self._limits.get(name)
            data = {"versions": [name], "max_in_flight": None if limit is None else limit.most, "reason": what}
            self._notes.append(
                Note(kind="cores", message=f"{name}: {what}", model=model, version=int(number), data=data)
            )


def machine_of(cpus: frozenset[int]) -> Machine:
    """Return the machine made of these CPUs, which hosts report that they may use."""
    return this_machine(cpus, usable=cpus)


def _existing_cores(move: Move, machine: Machine) -> tuple[list[int], list[int]]:
    """Return the cores before and after, without cores of an earlier, larger machine."""
    count = len(machine.cores)
    return [core for core in move.before if core < count], [core for core in move.after if core < count]

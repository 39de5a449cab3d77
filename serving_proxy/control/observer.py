# SPDX-License-Identifier: Apache-2.0
"""Follow the hosts' counters: once a second for the guard, every other second for the dashboard."""

from __future__ import annotations

import asyncio

from serving_proxy.control.views import WatchView
from serving_proxy.cores.loop import Cores
from serving_proxy.cores.machine import Load, owners, topology
from serving_proxy.cores.views import CpuView, MachineView, OwnerView, cores_view
from serving_proxy.counters.fallbacks import Fallbacks
from serving_proxy.counters.history import History
from serving_proxy.counters.live import LiveCounters
from serving_proxy.counters.stats_file import Key
from serving_proxy.counters.views import live_views, point_views
from serving_proxy.counters.windows import Totals
from serving_proxy.deploy.control import Control
from serving_proxy.guard.loop import Guard
from serving_proxy.guard.views import guard_view

PERIOD_S = 1.0


class Observer:
    """The counters of all hosts, and the objects that use them."""

    def __init__(self, control: Control, totals: Totals, guard: Guard, history: History, cores: Cores) -> None:
        self._control = control
        self._totals = totals
        self._cores = cores
        self._load = Load()
        self._busy: dict[int, float] = {}
        self._cpus = topology()
        self._guard = guard
        self._history = history
        self.live = LiveCounters()
        self._fallbacks = Fallbacks()
        self._timeline_errors: dict[Key, str | None] = {}
        self._told = asyncio.Event()

    async def run(self) -> None:
        """Run a step once a second until the task is cancelled."""
        while True:
            with self._control.recording_faults("observer"):
                self.step()
            await asyncio.sleep(PERIOD_S)

    def step(self, now: float | None = None) -> None:
        """Read the counters, judge the versions, and add a point to the history if one is due."""
        control = self._control
        self._totals.read(control.hosts)
        keys = {
            (model.name, version.number)
            for model in control.models.values()
            for version in model.versions.values()
            if version.desired
        }
        self._totals.keep(keys)
        self.live.step(control.hosts, keys, now)
        for (model, number), reason in self._fallbacks.step(control.hosts, sorted(keys)):
            control.note("precision", f"{model}/{number}: {reason}", model, number)
        self._note_timelines()
        self._guard.step(now)
        if self._history.step(keys, now):
            self._busy = self._load.percent()
            before, self._told = self._told, asyncio.Event()
            before.set()

    def _note_timelines(self) -> None:
        """Record once that a timeline has a fault, and that it has none any more."""
        errors = {key: live.error for key, live in self.live.figures.items()}
        for (model, number), error in errors.items():
            if error != self._timeline_errors.get((model, number)):
                text = "follows its timeline again" if error is None else f"refused: {error}"
                self._control.note("follow", f"{model}/{number}: {text}", model, number)
        self._timeline_errors = errors

    async def point(self) -> None:
        """Wait for the next point of the history."""
        await self._told.wait()

    def view(self) -> WatchView:
        """Return the newest point, the epochs, the verdicts and the owners of CPUs."""
        models = self._control.models
        return WatchView(
            points=point_views(self._history.newest()),
            live=live_views(self.live.figures),
            guards={name: guard_view(model, self._guard.watched(name)) for name, model in sorted(models.items())},
            machine=self.machine(),
        )

    def machine(self) -> MachineView:
        """Return the view of the machine."""
        return MachineView(
            cpus=[
                CpuView(cpu=cpu.number, core=cpu.core, package=cpu.package, busy=self._busy.get(cpu.number))
                for cpu in self._cpus
            ],
            owners=[
                OwnerView(
                    host=owner.host,
                    model=owner.model,
                    version=owner.version,
                    cpus=list(owner.cpus),
                    wanted=None if owner.wanted is None else list(owner.wanted),
                    own=owner.own,
                )
                for owner in owners(self._control.hosts, self._control.models, self._control.host_settings.cpusets)
            ],
            cores=cores_view(self._cores),
        )

# SPDX-License-Identifier: Apache-2.0
"""Follows what hosts count: once a second for the guard, every other second for the page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from serving_proxy.cores.machine import Load, owners, topology
from serving_proxy.counters.history import History
from serving_proxy.counters.windows import Totals
from serving_proxy.deploy.reconciler import Control
from serving_proxy.guard.alerts import Alerts
from serving_proxy.guard.loop import Guard
from serving_proxy.guard.views import (
    CoresView,
    CpuView,
    MachineView,
    OwnerView,
    WatchView,
    guard_view,
    point_views,
)

PERIOD_S = 1.0


class Observer:
    """The counters of all hosts, and those that look at them."""

    def __init__(self, control: Control, alerts: Alerts | None = None) -> None:
        self._control = control
        self.totals = Totals()
        # Who divides cores shows how; nobody by default.
        self.show_cores: Callable[[], CoresView] = lambda: CoresView(mode="off", pools=[], notes=[])
        self._load = Load()
        self._busy: dict[int, float] = {}
        self._cpus = topology()
        self.guard = Guard(control, self.totals, alerts)
        self.history = History(self.totals)
        self._told = asyncio.Event()

    async def run(self) -> None:
        """Look once a second until the task is cancelled."""
        while True:
            with self._control.going_on("observer"):
                self.step()
            await asyncio.sleep(PERIOD_S)

    def read(self) -> None:
        """Read the counters of hosts that have written them anew."""
        for host in self._control.hosts:
            self.totals.add(host.name, host.stats)

    def step(self, now: float | None = None) -> None:
        """Read the counters, judge, and draw a point if it is time for one."""
        control = self._control
        self.read()
        keys = {
            (model.name, one.number)
            for model in control.models.values()
            for one in model.versions.values()
            if one.desired
        }
        self.totals.keep(keys)
        self.guard.step(now)
        if self.history.step(keys, now):
            self._busy = self._load.percent()
            before, self._told = self._told, asyncio.Event()
            before.set()

    async def point(self) -> None:
        """Wait for the next point of the history."""
        await self._told.wait()

    def view(self) -> WatchView:
        """Show the newest point, the verdicts and who has which CPUs."""
        models = self._control.models
        return WatchView(
            points=point_views(self.history.newest()),
            guards={name: guard_view(one, self.guard.watched(name)) for name, one in sorted(models.items())},
            machine=self.machine(),
        )

    def machine(self) -> MachineView:
        """Show the machine."""
        return MachineView(
            cpus=[
                CpuView(cpu=one.number, core=one.core, package=one.package, busy=self._busy.get(one.number))
                for one in self._cpus
            ],
            owners=[
                OwnerView(
                    host=one.host,
                    model=one.model,
                    version=one.version,
                    cpus=list(one.cpus),
                    wanted=None if one.wanted is None else list(one.wanted),
                    own=one.own,
                )
                for one in owners(self._control.hosts, self._control.models, self._control.host_settings.cpusets)
            ],
            cores=self.show_cores(),
        )

# SPDX-License-Identifier: Apache-2.0
"""Follow the machines: remember their names for the next proxy, and record when one comes, goes or cannot follow."""

from __future__ import annotations

import asyncio
import contextlib

from serving_proxy.deploy.control import Control
from serving_proxy.errors import ProxyError
from serving_proxy.fleet.drains import Drains
from serving_proxy.fleet.logs import MachineLogs
from serving_proxy.fleet.machines import Machines
from serving_proxy.fleet.placements import Placements
from serving_proxy.fleet.states import MachineStates
from serving_proxy.fleet.views import FleetMachineView, machine_views
from serving_proxy.store import Repository

_PERIOD_S = 1.0
_SETTING = "machines"
# Once a machine is in one of these states, an event says so.
_NOTED = {"away", "failed", "refuses"}


def known_machines(repository: Repository) -> list[str]:
    """Return the machines that an earlier proxy knew."""
    found = repository.setting(_SETTING)
    return [str(name) for name in found] if isinstance(found, list) else []


class Fleet:
    """The machines of a proxy whose hosts are run by agents."""

    def __init__(self, control: Control, machines: Machines, states: MachineStates) -> None:
        self.machines = machines
        self.states = states
        self.placements = Placements(control, machines)
        self.drains = Drains(control, machines)
        self.logs = MachineLogs(machines, control.options.state_dir / "received_logs")
        self._control = control
        self._remembered = machines.names
        self._noted: dict[str, tuple[str, str]] = {}

    def views(self) -> list[FleetMachineView]:
        """Return the views of all machines."""
        return machine_views(self.machines, self.states.order, self._control.host_settings.drained)

    def remove(self, name: str) -> None:
        """Remove a machine that has ended for good, and its drains."""
        self.machines.remove(name)
        self.drains.forget(name)

    async def run(self) -> None:
        """Follow the machines until the task is cancelled."""
        while True:
            with self._control.recording_faults("machines"):
                self.step()
            await asyncio.sleep(_PERIOD_S)

    def step(self) -> None:
        """Look at all machines once."""
        for name in self.machines.forget():
            self._control.note("machine", f"{name}: forgotten, as it has been away for an hour")
        for view in self.views():
            self._note(view)
        self.remember()
        self.placements.step()

    def remember(self) -> None:
        """Store the names of the machines, so that another proxy waits for their reports before it changes anything."""
        names = self.machines.names
        if names != self._remembered:
            with contextlib.suppress(ProxyError):
                self._control.repository.set_setting(_SETTING, names)
                self._remembered = names

    def _note(self, view: FleetMachineView) -> None:
        before = self._noted.get(view.name)
        now = (view.state, view.reason if view.state != "away" else "") if view.state in _NOTED else ("follows", "")
        if before == now or (before is None and view.version == ""):
            return
        self._noted[view.name] = now
        told = {"follows": "follows", "away": "away"}.get(now[0], f"{now[0]}, {now[1]}")
        self._control.note("machine", f"{view.name}: {told}")

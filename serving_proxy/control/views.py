# SPDX-License-Identifier: Apache-2.0
"""The API's views of the proxy as a whole: its status, its events, and the values that change all the time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from serving_proxy.cores.views import MachineView
from serving_proxy.counters.views import LiveView, PointView
from serving_proxy.deploy.views import JobView, ModelView
from serving_proxy.fleet.views import FleetMachineView
from serving_proxy.guard.views import GuardView
from serving_proxy.hosts.views import HostView
from serving_proxy.records.view import View
from serving_proxy.replicas.views import ReplicasView
from serving_proxy.store import Event


class EventView(View):
    """An entry of the event log."""

    id: int
    at: float
    kind: str
    model: str | None
    version: int | None
    message: str
    data: dict[str, Any]


class StatusView(View):
    """The state of the whole proxy."""

    version: str
    pid: int
    started: float
    term: int
    generation: int
    fault: str | None
    draining: bool
    machines: list[FleetMachineView]
    replicas: ReplicasView | None
    hosts: list[HostView]
    models: list[ModelView]
    jobs: list[JobView]
    last_event: int


class WatchView(View):
    """The values that change all the time: `points` and `live` by model and version, verdicts, CPUs."""

    points: dict[str, dict[str, PointView]]
    live: dict[str, dict[str, LiveView]]
    guards: dict[str, GuardView]
    machine: MachineView


def event_view(event: Event) -> EventView:
    """Return the view of an event."""
    return EventView.model_validate(asdict(event))


def host_views(hosts: Iterable[HostView], machines: Iterable[FleetMachineView]) -> list[HostView]:
    """Return the views of hosts; nobody knows whether those of machines that are away serve: their state is `away`."""
    away = {machine.name for machine in machines if machine.state == "away"}
    return [
        host.model_copy(update={"state": "away"}) if host.name.partition("/")[0] in away else host for host in hosts
    ]

# SPDX-License-Identifier: Apache-2.0
"""The API's view of machines."""

from __future__ import annotations

from collections.abc import Collection

from serving_proxy.fleet.machines import Machine, Machines
from serving_proxy.records.view import View


class FleetMachineView(View):
    """A machine; `state` is `current`, `behind`, `fetching`, `failed`, `refuses` or `away`.

    `behind`: it has not taken over the newest state yet. `fetching` and `failed`: the files of a version are not there
    yet. `refuses`: it has followed a newer state than the one that this proxy has.
    """

    name: str
    state: str
    reason: str
    away_for: float | None
    term: int
    generation: int
    cpus: int
    memory_bytes: int
    version: str
    hosts: list[str]
    fetching: dict[str, str]
    failed: dict[str, str]


def machine_views(machines: Machines, order: tuple[int, int], drained: Collection[str] = ()) -> list[FleetMachineView]:
    """Return the views of all machines.

    Parameters
    ----------
    machines : Machines
    order : (int, int)
        The present (term, generation).
    drained : collection of str
        As in `HostSettings`.
    """
    return [_view(machines, machine, order, f"{machine.name}/*" in drained) for machine in machines.all()]


def _view(machines: Machines, machine: Machine, order: tuple[int, int], drained: bool) -> FleetMachineView:
    report, away = machine.report, machines.away_for(machine)
    if report is None:
        return FleetMachineView(
            name=machine.name, state="away", reason="has not reported to this proxy yet", away_for=away, term=0,
            generation=0, cpus=0, memory_bytes=0, version="", hosts=[], fetching={}, failed={},
        )  # fmt: skip
    state, reason = "current", ""
    if away is not None:
        state, reason = "away", f"no report for {away:.0f} s"
    elif machines.has_rival(machine):
        reason = "two agents report under this name, expected one agent a name"
    elif report.refused:
        state, reason = "refuses", report.refused
    elif report.failed:
        state, reason = "failed", "; ".join(f"{name}: {why}" for name, why in sorted(report.failed.items()))
    elif report.fetching:
        state, reason = "fetching", "; ".join(f"{name}: {how}" for name, how in sorted(report.fetching.items()))
    elif (report.term, report.generation) != order:
        state = "behind"
    elif drained:
        reason = "drained"
    elif report.cores_fault or report.left_out:
        faults = (f"cores: {report.cores_fault}",) if report.cores_fault else ()
        reason = "; ".join((*faults, *report.left_out))
    return FleetMachineView(
        name=machine.name,
        state=state,
        reason=reason,
        away_for=away,
        term=report.term,
        generation=report.generation,
        cpus=report.cpus,
        memory_bytes=report.memory_bytes,
        version=report.version,
        hosts=sorted(machine.hosts),
        fetching=report.fetching,
        failed=report.failed,
    )

# SPDX-License-Identifier: Apache-2.0
"""The machines whose agents report to this proxy.

Time is measured by this process alone, so the clocks of machines may differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from serving_proxy.errors import ExistsError
from serving_proxy.records.agents import AgentReport, ReportAnswer
from serving_proxy.records.hosts import HUNG, HostSeen, VersionSeen
from serving_proxy.state_dir.actual import parse_actual

# A machine that has not reported for this time counts as away.
SILENT_S = 6.0
_FORGET_S = 3600.0
# A new proxy waits this long for the machines that the one before it knew, once their agents know of it.
_GATHER_S = 5.0
_LEAST_PERIOD_S = 1.0
# At most so many reports a second, whatever the number of machines.
_REPORTS_PER_S = 200.0
# Statistics of twenty models take 3 ms to read.
_STATS_PER_S = 50.0
_MOST_REPLACED = 15
# An agent that is refused reports again every 8 seconds.
_RIVAL_S = 20.0


@dataclass
class Machine:
    """A machine, its last report, and its hosts as they result from all reports.

    Attributes
    ----------
    heard : float [s]
        When it reported last, or when this proxy began.
    replaced : tuple of str
        Agents that others have replaced; one that still reports shares its name with another machine.
    is_complete : bool
        It has reported all of its hosts.
    rival_heard : float or None [s]
        When a second agent of the same name was refused last.
    """

    name: str
    heard: float
    report: AgentReport | None = None
    hosts: dict[str, HostSeen] = field(default_factory=dict)
    replaced: tuple[str, ...] = ()
    is_complete: bool = False
    rival_heard: float | None = None


class Machines:
    """The machines, by name.

    Parameters
    ----------
    known : iterable of str
        Machines that an earlier proxy knew.
    clock : callable
        Returns seconds.
    are_told : bool
        Agents know of this proxy; otherwise `begin` is called once they do.
    """

    def __init__(
        self, known: Iterable[str] = (), clock: Callable[[], float] = time.monotonic, are_told: bool = True
    ) -> None:
        self._clock = clock
        self._begun = clock()
        self._are_told = are_told
        self._settled = False
        self._machines = {name: Machine(name, self._begun) for name in known}

    @property
    def names(self) -> list[str]:
        """Return all machines that have not been forgotten."""
        return sorted(self._machines)

    @property
    def settled(self) -> bool:
        """Return whether the hosts are known: every known machine has reported, or has had the time to."""
        if not self._settled:
            reported = all(machine.is_complete for machine in self._machines.values())
            waited = self._clock() - self._begun
            is_late = self._are_told and waited >= _GATHER_S
            self._settled = (reported and waited >= _LEAST_PERIOD_S) or is_late
        return self._settled

    @property
    def highest_order(self) -> tuple[int, int]:
        """Return the largest (term, generation) that an agent has accepted."""
        return max((_highest(machine.report) for machine in self.all() if machine.report is not None), default=(0, 0))

    @property
    def report_period(self) -> float:
        """Return how often each agent reports [s]."""
        return self._period(_REPORTS_PER_S)

    def begin(self) -> None:
        """Wait for reports from now on: agents have been told of this proxy, or cannot be."""
        if not self._are_told:
            self._are_told, self._begun = True, self._clock()

    def accept(self, name: str, report: AgentReport, order: tuple[int, int]) -> ReportAnswer:
        """Take a machine's report.

        Parameters
        ----------
        name : str
        report : AgentReport
        order : (int, int)
            The present (term, generation).

        Raises
        ------
        ExistsError
            Another agent reports under the same name.
        """
        now = self._clock()
        machine = self._machines.setdefault(name, Machine(name, now))
        if report.agent in machine.replaced:
            if not self._is_silent(machine):
                machine.rival_heard = now
                raise ExistsError(f"machine '{name}': another agent reports under this name, expected one agent a name")
            # The agent that took its name has ended.
            machine.replaced = tuple(agent for agent in machine.replaced if agent != report.agent)
        if machine.report is not None and machine.report.agent != report.agent:
            machine.replaced = (*machine.replaced[-_MOST_REPLACED:], machine.report.agent)
            # Hosts of the same names are others: an agent leaves out only what it has told itself.
            machine.hosts = {}
        machine.hosts = {host: seen for host, seen in machine.hosts.items() if host in report.hosts}
        unknown = []
        for host, told in report.hosts.items():
            label = f"{name}/{host}"
            if told.actual is not None:
                machine.hosts[host] = replace(parse_actual(label, told.actual), machine=name, address=report.address)
            elif host not in machine.hosts:
                unknown.append(host)
                continue
            seen = machine.hosts[host]
            state = HUNG if told.hung else seen.state if seen.state != HUNG else "ready"
            stats, counted = told.stats or seen.stats, told.counted_at or seen.counted_at
            machine.hosts[host] = replace(seen, alive=told.alive, state=state, stats=stats, counted_at=counted)
        machine.report, machine.heard, machine.is_complete = report, now, not unknown
        return ReportAnswer(
            term=order[0],
            generation=order[1],
            report_in=self.report_period,
            stats_in=self._period(_STATS_PER_S),
            unknown=tuple(unknown),
        )

    def remove(self, name: str) -> None:
        """Remove a machine that has ended for good."""
        self._machines.pop(name, None)

    def forget(self) -> list[str]:
        """Remove the machines that have been away for an hour, and return their names."""
        now = self._clock()
        gone = [machine.name for machine in self.all() if now - machine.heard > _FORGET_S]
        for name in gone:
            del self._machines[name]
        return gone

    def all(self) -> list[Machine]:
        """Return the machines by name."""
        return [machine for _, machine in sorted(self._machines.items())]

    def find(self, name: str) -> Machine | None:
        """Return a machine; None: it has been forgotten."""
        return self._machines.get(name)

    def away_for(self, machine: Machine) -> float | None:
        """Return how long a machine has not reported [s]; None if it reports."""
        silent = self._clock() - machine.heard
        longest = max(SILENT_S, 3 * self.report_period)
        return None if machine.report is not None and silent < longest else silent

    def away(self) -> dict[str, float]:
        """Return how long each machine that is away has not reported [s]."""
        found = ((machine.name, self.away_for(machine)) for machine in self.all())
        return {name: silent for name, silent in found if silent is not None}

    def has_rival(self, machine: Machine) -> bool:
        """Return whether a second agent reports under the name of a machine."""
        return machine.rival_heard is not None and self._clock() - machine.rival_heard < _RIVAL_S

    def read(self) -> tuple[HostSeen, ...]:
        """Return the hosts of all machines; those of machines that are away are not alive."""
        found = []
        for machine in self.all():
            silent = self._is_silent(machine)
            failed = {} if machine.report is None else machine.report.failed
            refuses = machine.report is not None and machine.report.refused is not None
            for seen in machine.hosts.values():
                host = replace(seen, alive=False, away=seen.alive) if silent else seen
                host = replace(host, refuses=True) if refuses else host
                found.append(_with_failed(host, failed) if failed else host)
        return tuple(found)

    def lacking(self, feature: str) -> str:
        """Return which machine's agent lacks a feature; "": none does that reports."""
        for machine in self.all():
            report = machine.report
            if report is not None and not self._is_silent(machine) and feature not in report.features:
                return f"machine '{machine.name}': its agent (release {report.version}) lacks {feature}"
        return ""

    def _period(self, most_per_s: float) -> float:
        return max(_LEAST_PERIOD_S, len(self._machines) / most_per_s)

    def _is_silent(self, machine: Machine) -> bool:
        return self.away_for(machine) is not None


def _highest(report: AgentReport) -> tuple[int, int]:
    # A refused state may have the same order, but must then have a larger one.
    return report.highest_term, report.highest_generation + (report.refused is not None)


def _with_failed(host: HostSeen, failed: dict[str, str]) -> HostSeen:
    """Add the versions whose files the machine cannot fetch to what a host reports."""
    models = {model: dict(versions) for model, versions in host.models.items()}
    for name, reason in failed.items():
        model, _, number = name.rpartition("/")
        if number.isdecimal() and int(number) not in models.get(model, {}):
            models.setdefault(model, {})[int(number)] = VersionSeen("failed", None, reason)
    return replace(host, models=models)

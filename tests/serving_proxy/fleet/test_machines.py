# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from serving_proxy.errors import ExistsError
from serving_proxy.fleet.machines import Machines
from serving_proxy.fleet.views import machine_views
from serving_proxy.records.agents import AgentReport, HostReport

ORDER = (1, 7)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def actual(generation: int = 7) -> dict[str, Any]:
    versions = {"1": {"state": "ready", "path": "/models/1"}}
    return {"pid": 5, "state": "ready", "generation": generation, "models": {"a": {"versions": versions}}}


def report(agent: str = "x", told: dict[str, Any] | None = None, **values: Any) -> AgentReport:
    host = HostReport(alive=True, actual=actual() if told is None else told or None)
    return AgentReport(**{"agent": agent, "version": "1", "term": 1, "generation": 7, "hosts": {"h": host}} | values)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_hosts_of_a_machine_that_falls_silent_are_not_alive(clock: Clock) -> None:
    machines = Machines(clock=clock)
    machines.accept("m", report(), ORDER)
    (host,) = machines.read()
    assert (host.name, host.machine, host.alive, host.models["a"][1].state) == ("m/h", "m", True, "ready")
    clock.now += 60
    (host,) = machines.read()
    assert (host.alive, host.away, machines.away()) == (False, True, {"m": 60.0})
    assert [view.state for view in machine_views(machines, ORDER)] == ["away"]
    clock.now += 3600
    assert machines.forget() == ["m"]
    assert machines.read() == ()


def test_report_without_a_file_keeps_the_file_or_asks_for_it(clock: Clock) -> None:
    machines = Machines(clock=clock)
    assert machines.accept("m", report(told={}), ORDER).unknown == ("h",)
    assert machines.read() == ()
    assert machines.accept("m", report(), ORDER).unknown == ()
    assert machines.accept("m", report(told={}), ORDER).unknown == ()
    assert machines.read()[0].generation == 7


def test_agent_whose_name_another_agent_has_taken_is_refused(clock: Clock) -> None:
    machines = Machines(clock=clock)
    machines.accept("m", report("first"), ORDER)
    machines.accept("m", report("second"), ORDER)
    with pytest.raises(ExistsError, match="another agent reports under this name"):
        machines.accept("m", report("first"), ORDER)
    machines.accept("m", report("second"), ORDER)
    (view,) = machine_views(machines, ORDER)
    assert view.reason == "two agents report under this name, expected one agent a name"
    # The first one does not know of the second, which may have been started by mistake.
    clock.now += 10
    machines.accept("m", report("first"), ORDER)
    with pytest.raises(ExistsError):
        machines.accept("m", report("second"), ORDER)
    clock.now += 60
    machines.accept("m", report("first"), ORDER)
    assert machine_views(machines, ORDER)[0].reason == ""


def test_agent_that_returns_has_hosts_of_its_own_again(clock: Clock) -> None:
    machines = Machines(clock=clock)
    machines.accept("m", report("first", address="10.0.0.1"), ORDER)
    machines.accept("m", report("second", actual(generation=9), address="10.0.0.2"), ORDER)
    (host,) = machines.read()
    assert (host.generation, host.address) == (9, "10.0.0.2")
    # The second one ends, and the first one has nothing new to tell.
    clock.now += 60
    assert machines.accept("m", report("first", told={}, address="10.0.0.1"), ORDER).unknown == ("h",)
    assert machines.read() == ()
    machines.accept("m", report("first", address="10.0.0.1"), ORDER)
    (host,) = machines.read()
    assert (host.generation, host.address) == (7, "10.0.0.1")


def test_versions_that_a_machine_cannot_fetch_have_failed_there(clock: Clock) -> None:
    machines = Machines(clock=clock)
    machines.accept("m", report(failed={"a/2": "no such bucket"}), ORDER)
    assert machines.read()[0].models["a"][2].error == "no such bucket"
    assert [view.state for view in machine_views(machines, ORDER)] == ["failed"]


def test_machines_are_settled_once_known_ones_have_reported_or_had_the_time(clock: Clock) -> None:
    machines = Machines(["m", "n"], clock=clock)
    clock.now += 2
    machines.accept("m", report(highest_term=3, highest_generation=9), ORDER)
    assert not machines.settled
    # It does not know yet that another proxy leads.
    machines.accept("n", report(told={}), ORDER)
    assert not machines.settled
    machines.accept("n", report(), ORDER)
    assert machines.settled
    assert machines.highest_order == (3, 9)
    later = Machines(["m"], clock=clock)
    clock.now += 10
    assert later.settled


def test_time_to_report_begins_when_agents_have_been_told_of_the_proxy(clock: Clock) -> None:
    machines = Machines(["m"], clock=clock, are_told=False)
    clock.now += 60
    assert not machines.settled
    machines.begin()
    clock.now += 4
    machines.begin()
    assert not machines.settled
    clock.now += 2
    assert machines.settled


def test_states_of_machines_are_told_apart(clock: Clock) -> None:
    machines = Machines(clock=clock)
    machines.accept("behind", report(generation=6), ORDER)
    machines.accept("current", report(), ORDER)
    machines.accept("fetching", report(fetching={"a/2": "3 of 9 MB"}), ORDER)
    machines.accept("refuses", report(refused="older"), ORDER)
    assert [host.name for host in machines.read() if host.refuses] == ["refuses/h"]
    assert {view.name: view.state for view in machine_views(machines, ORDER)} == {
        name: name for name in ("behind", "current", "fetching", "refuses")
    }

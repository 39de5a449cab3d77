# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from helpers.proxies.lifecycle_records import deployed, settled
from serving_proxy.deploy.endpoints import endpoints
from serving_proxy.records.hosts import HostSeen, VersionSeen

MODEL = settled(deployed(None, 3))
AWAY = {"m": 42.0}


def host(**values: Any) -> HostSeen:
    models = {MODEL.name: {3: VersionSeen(values.pop("version", "ready"))}}
    given: dict[str, Any] = {"name": "m/h", "alive": True, "state": "ready", "machine": "m", "models": models}
    given["endpoints"] = {"grpc": "127.0.0.1:8500"}
    return HostSeen(**given | values)


@pytest.mark.parametrize(
    "unready",
    [
        {"alive": False},
        {"state": "draining"},
        {"state": "hung"},
        {"version": "loading"},
        {"models": {}},
        {"endpoints": {}},
    ],
)
def test_hosts_that_are_not_ready_are_left_out(unready: dict[str, Any]) -> None:
    assert endpoints(MODEL, [host(**unready)], None, False) == []
    assert [found.host for found in endpoints(MODEL, [host(**unready), host(name="n/h")], None, False)] == ["n/h"]


@pytest.mark.parametrize(
    "lost",
    [
        {"away": False},
        {"state": "draining"},
        {"version": "loading"},
        {"drained": ["m/*"]},
        {"drained": ["m/h"]},
        {"silent": None},
        {"generation": 6},
        {"since": None},
    ],
)
def test_hosts_of_a_machine_that_is_away_are_listed_last_as_it_reported_them(lost: dict[str, Any]) -> None:
    def names(
        drained: tuple[str, ...] = (),
        silent: dict[str, float] | None = AWAY,
        since: int | None = 7,
        **values: Any,
    ) -> list[Any]:
        hosts = [host(**{"alive": False, "away": True, "generation": 7} | values), host(name="n/h", machine="n")]
        found = endpoints(MODEL, hosts, None, False, silent, drained, since)
        return [(endpoint.host, endpoint.away_for) for endpoint in found]

    assert names() == [("n/h", None), ("m/h", 42.0)]
    assert names(**lost) == [("n/h", None)]


def test_host_is_listed_while_its_agent_comes_back() -> None:
    # The agent has reported, but the control loop has not read its report yet.
    (found,) = endpoints(MODEL, [host(alive=False, away=True)], None, False, {})
    assert (found.host, found.away_for) == ("m/h", None)
    assert endpoints(MODEL, [host(alive=False, away=True)], None, False, {}, ["m/*"]) == []


@pytest.mark.parametrize(
    ("listens", "address", "expected"),
    [
        ("0.0.0.0:8500", "10.0.0.1", "10.0.0.1:8500"),
        ("[::]:8500", "fd00::1", "[fd00::1]:8500"),
        ("127.0.0.1:8500", "10.0.0.1", "127.0.0.1:8500"),
        ("0.0.0.0:8500", "", "0.0.0.0:8500"),
        ("unix:/run/host.sock", "10.0.0.1", "unix:/run/host.sock"),
    ],
)
def test_addresses_are_those_that_other_machines_reach(listens: str, address: str, expected: str) -> None:
    (found,) = endpoints(MODEL, [host(endpoints={"grpc": listens}, address=address)], None, False)
    assert found.addresses == {"grpc": expected}


def test_model_without_a_baseline_has_no_endpoints() -> None:
    assert endpoints(MODEL.change(baseline=None), [host()], None, False) == []

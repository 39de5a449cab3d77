# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from helpers.proxies.lifecycle_records import deployed, host
from serving_proxy.cores.machine import Cpu, Load, Owner, owners, topology
from serving_proxy.records.hosts import HostSeen, VersionSeen
from serving_proxy.records.models import Settings


def _host(cpusets: dict[int, str | None], cpus: str = "0-3", **values: Any) -> HostSeen:
    versions = {number: VersionSeen("ready", details={"cpuset": cpuset}) for number, cpuset in cpusets.items()}
    return host({}, cpus=cpus, models={"ranking": versions}, **values)


def test_versions_own_the_cpus_that_hosts_say() -> None:
    model = deployed(deployed(None, 3), 4)
    found = owners([_host({3: "0;1", 4: None})], {"ranking": model})
    assert found == [
        Owner("host-0", "ranking", 3, (0, 1), None, True),
        Owner("host-0", "ranking", 4, (0, 1, 2, 3), None, False),
    ]


def test_requested_cpus_are_shown_until_they_are_in_force() -> None:
    model = deployed(None, 3, settings=Settings(cpuset="2-3"))
    (found,) = owners([_host({3: "0-1"})], {"ranking": model})
    assert (found.cpus, found.wanted, found.own) == ((0, 1), (2, 3), True)


def test_cpus_from_the_proxy_take_precedence_over_the_setting() -> None:
    model = deployed(None, 3, settings=Settings(cpuset="2-3"))
    (found,) = owners([_host({3: "0-1"})], {"ranking": model}, {"host-0": {"ranking/3": "1"}})
    assert (found.cpus, found.wanted, found.own) == ((0, 1), (1,), True)


def test_dead_hosts_and_failed_versions_own_nothing() -> None:
    model = deployed(None, 3)
    assert owners([_host({3: "0"}, alive=False)], {"ranking": model}) == []
    assert owners([host({3: "failed: why"}, cpus="0")], {"ranking": model}) == []


@pytest.mark.parametrize("text", ["x", "0-", "-3", "5-1", "99999999", "0-99999999"])
def test_invalid_reports_of_hosts_are_ignored(text: str) -> None:
    owners([_host({3: text}, cpus=text)], {})


def test_topology_is_that_of_the_machine(tmp_path: Path) -> None:
    assert {cpu.number for cpu in topology()} == os.sched_getaffinity(0)
    for number, core in ((0, 0), (1, 0), (2, 1)):
        place = tmp_path / f"cpu{number}" / "topology"
        place.mkdir(parents=True)
        (place / "core_id").write_text(f"{core}\n", encoding="ascii")
        (place / "physical_package_id").write_text("1\n", encoding="ascii")
    assert topology([0, 1, 2, 3], tmp_path) == (Cpu(0, 0, 1), Cpu(1, 0, 1), Cpu(2, 1, 1), Cpu(3, 3, 0))


def test_load_is_the_share_of_busy_ticks(tmp_path: Path) -> None:
    file = tmp_path / "stat"
    file.write_text("cpu  1 1 1 1\ncpu0 100 0 100 800 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\n", encoding="ascii")
    load = Load(file)
    assert load.percent() == {}
    file.write_text("cpu  1 1 1 1\ncpu0 130 0 120 840 10 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\n", encoding="ascii")
    assert load.percent() == {0: 50.0}
    assert Load(tmp_path / "nothing").percent() == {}

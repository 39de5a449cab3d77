# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from cost_model.errors import MachineError
from cost_model.machine import Core, Machine, load_machine, parse_cpus, parse_machine, this_machine


@pytest.fixture
def two_nodes(tmp_path: Path) -> Path:
    """A /sys with 8 CPUs: 4 cores of 2 siblings on 2 nodes; CPU 7 is offline, CPUs 8 and up are not there."""
    cpu = tmp_path / "devices/system/cpu"
    for number in range(8):
        folder = cpu / f"cpu{number}" / "topology"
        folder.mkdir(parents=True)
        first = number % 4
        siblings = "3" if number == 3 else f"{first},{first + 4}"
        (folder / "thread_siblings_list").write_text(f"{siblings}\n")
    (cpu / "online").write_text("0-6\n")
    (cpu / "present").write_text("0-7\n")
    for node, cpus in enumerate(("0-1,4-5", "2-3,6-7")):
        folder = tmp_path / f"devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{cpus}\n")
    return tmp_path


def test_cores_contain_their_siblings_and_node(two_nodes: Path) -> None:
    machine = this_machine(sys_root=two_nodes, usable=range(7), quota=math.inf)
    assert machine.cores == (Core((0, 4), 0), Core((1, 5), 0), Core((2, 6), 1), Core((3,), 1))
    assert machine.nodes == (0, 1)
    assert machine.smt == 2
    assert machine.notes == ()


def test_sibling_that_may_not_be_used_is_reported(two_nodes: Path) -> None:
    machine = this_machine([0], sys_root=two_nodes, usable=range(7), quota=math.inf)
    assert machine.cores == (Core((0,), 0),)
    assert "other processes may use its sibling CPU 4" in machine.notes[0]


@pytest.mark.parametrize(
    ("cpu", "message"), [(9, "CPU 9, which this machine does not have"), (7, "offline"), (6, "may not use")]
)
def test_unavailable_cpu_is_refused(two_nodes: Path, cpu: int, message: str) -> None:
    with pytest.raises(MachineError, match=message):
        this_machine([0, cpu], sys_root=two_nodes, usable=range(6), quota=math.inf)


def test_quota_below_the_cpu_set_reduces_the_cores(two_nodes: Path) -> None:
    machine = this_machine(sys_root=two_nodes, usable=range(7), quota=4.5)
    assert len(machine.cores) == 2
    assert "quota allows 4.5 of 7 CPUs: 2 of 4 cores are used" in machine.notes[0]
    with pytest.raises(MachineError, match=r"cgroup: a quota of 0\.3 CPUs found, expected at least 1"):
        this_machine(sys_root=two_nodes, usable=range(7), quota=0.3)
    # One core with two siblings, and a quota of one and a half CPUs.
    part = this_machine([0, 4], sys_root=two_nodes, usable=range(7), quota=1.5)
    assert "quota allows 1.5 of 2 CPUs: 1 of 1 cores are used" in part.notes[0]


@pytest.mark.parametrize(("quota", "cores"), [("150000 100000", 1), ("max 100000", 4), ("350000 100000", 1)])
def test_quota_of_the_cgroup_is_read(two_nodes: Path, quota: str, cores: int) -> None:
    (two_nodes / "fs/cgroup").mkdir(parents=True)
    (two_nodes / "fs/cgroup/cpu.max").write_text(f"{quota}\n")
    if "0::" not in Path("/proc/self/cgroup").read_text():
        pytest.skip("this kernel has no unified cgroups")
    assert len(this_machine(sys_root=two_nodes, usable=range(7)).cores) == cores


def test_this_machine_has_the_cpus_that_the_process_may_use() -> None:
    cpus = {cpu for core in this_machine(quota=math.inf).cores for cpu in core.cpus}
    assert cpus == os.sched_getaffinity(0)


def test_even_machine_numbers_siblings_as_linux_does() -> None:
    machine = Machine.even(4, numa_nodes=2, smt=2)
    assert machine.cores == (Core((0, 4), 0), Core((1, 5), 0), Core((2, 6), 1), Core((3, 7), 1))


@pytest.mark.parametrize("text", ["", "a", "3-1", "0,,1", "-2", "0-99999999", "²", "0-²"])
def test_malformed_cpu_list_is_refused(text: str) -> None:
    with pytest.raises(MachineError, match="cpus: "):
        parse_cpus(text)


def test_cpu_list_is_parsed() -> None:
    assert parse_cpus("0-2,8, 1") == (0, 1, 2, 8)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"cores": 0}, r"machine\.cores: 0 found"),
        ({"cores": 2, "numa_nodes": 3}, r"machine\.numa_nodes: 3 found"),
        ({"cores": 2, "memory_bandwidth_gbs_per_node": math.nan}, "nan found, expected a number above 0"),
        ({"cores": 2, "sockets": 1}, "unknown member 'sockets'"),
        ({}, r"machine\.cores: nothing found"),
        ([], "expected a mapping"),
        ({"cpus": "0,4095"}, "CPU 4095"),
    ],
)
def test_bad_machine_is_refused(data: object, message: str) -> None:
    with pytest.raises(MachineError, match=message):
        parse_machine(data)


def test_machine_can_be_read_from_a_workload_file(tmp_path: Path) -> None:
    (tmp_path / "box.yaml").write_text("machine: {cores: 6, numa_nodes: 2}\nmodels: []\n")
    assert len(load_machine(tmp_path / "box.yaml").cores) == 6
    with pytest.raises(MachineError, match="No such file"):
        load_machine(tmp_path / "none.yaml")

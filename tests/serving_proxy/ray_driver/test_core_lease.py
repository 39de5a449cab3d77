# SPDX-License-Identifier: Apache-2.0
"""CPUs that replicas of one machine do not share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from serving_proxy.cores.machine import Cpu
from serving_proxy.ray_driver.core_lease import CoreLease, choose

# Two sockets with two cores of two CPUs each; siblings are numbered like those of most servers.
CPUS = tuple(Cpu(number, number % 4, number % 4 // 2) for number in range(8))


def numbers(found: tuple[Cpu, ...]) -> list[int]:
    return sorted(cpu.number for cpu in found)


def test_cpus_are_whole_cores_of_one_socket() -> None:
    assert numbers(choose(CPUS, 2)) == [0, 4]
    assert numbers(choose(CPUS, 4)) == [0, 1, 4, 5]
    assert numbers(choose(CPUS, 6)) == [0, 1, 2, 4, 5, 6]
    assert choose(CPUS, 9) == ()


def test_half_cores_are_left_for_replicas_that_need_one_cpu() -> None:
    free = tuple(cpu for cpu in CPUS if cpu.number != 0)
    assert numbers(choose(free, 1)) == [4]
    assert numbers(choose(free, 2)) == [1, 5] or numbers(choose(free, 2)) == [2, 6]


def test_smaller_socket_is_filled_first() -> None:
    free = tuple(cpu for cpu in CPUS if cpu.number not in {0, 4})
    assert numbers(choose(free, 2)) == [1, 5]
    assert numbers(choose(free, 4)) == [2, 3, 6, 7]


def test_two_leases_have_no_cpu_in_common(tmp_path: Path) -> None:
    first, second, third = (CoreLease(4, tmp_path) for _ in range(3))
    for lease in (first, second, third):
        lease.take(CPUS)
    assert set(first.cpus) | set(second.cpus) == set(range(8))
    assert third.cpus == ()
    assert third.text == ""
    assert "0 of 8 CPUs are free, expected 4" in third.note
    first.release()
    third.take(CPUS)
    assert len(third.cpus) == 4
    assert third.note == ""


def test_host_keeps_the_cpus_of_an_actor_that_has_been_killed(tmp_path: Path) -> None:
    lease, other = CoreLease(8, tmp_path), CoreLease(1, tmp_path)
    lease.take(CPUS)
    host = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=lease.files)
    try:
        lease.release()
        other.take(CPUS)
        assert other.cpus == ()
    finally:
        host.kill()
        host.communicate()
    other.take(CPUS)
    assert len(other.cpus) == 1


@pytest.mark.parametrize("count", [1, 3, 5, 7])
def test_as_many_cpus_as_asked_for_are_chosen(count: int) -> None:
    assert len(set(choose(CPUS, count))) == count

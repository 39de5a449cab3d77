# SPDX-License-Identifier: Apache-2.0
"""Threads that read requests do not run on the CPUs that belong to a baseline."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from helpers.hosts.host_requests import ranking_body
from helpers.hosts.served_hosts import ServedHost, model
from helpers.system.waiting import wait_until
from serving_proxy.system.cpus import parse_cpus

CPUS = sorted(os.sched_getaffinity(0))

# Where the machine is busy it goes back for half a minute.
_FALLS_BACK_S = 100.0

pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="one CPU: there is nothing to divide")


def cpus_of_threads(host: ServedHost) -> dict[str, set[tuple[int, ...]]]:
    """Return the CPUs on which threads may run, by the threads' names."""
    assert host.process is not None
    found: dict[str, set[tuple[int, ...]]] = {}
    for task in Path(f"/proc/{host.process.pid}/task").iterdir():
        with contextlib.suppress(OSError):
            cpus = tuple(sorted(os.sched_getaffinity(int(task.name))))
            found.setdefault((task / "comm").read_text().strip(), set()).add(cpus)
    return found


def main_thread(host: ServedHost) -> list[int]:
    """Return the CPUs on which the main thread may run, which belongs to the front end."""
    assert host.process is not None
    return sorted(os.sched_getaffinity(host.process.pid))


def divided(ranking: dict[str, Any], baseline: int, cpusets: dict[str, str]) -> dict[str, Any]:
    """Return desired models whose versions run on threads of sessions, on these CPUs."""
    versions = {
        int(number): {**entry, "cpuset": cpusets[number]}
        for number, entry in ranking["versions"].items()
        if number in cpusets
    }
    return {"ranking": model(baseline, versions)}


def places(host: ServedHost) -> tuple[str, bool]:
    """Return the CPUs of the front end, and whether it responds."""
    answer = httpx.post(f"http://{host.rest}/api/predict/ranking", content=ranking_body(), timeout=20)
    return host.actual()["front_end_cpus"], answer.is_success


def test_front_end_follows_the_division(start_host, served_models) -> None:
    ranking = served_models["ranking"]
    first, rest = str(CPUS[0]), ",".join(map(str, CPUS[1:]))
    with start_host({"ranking": ranking}) as host:
        everywhere, _ = places(host)
        host.desire(divided(ranking, 1, {"1": first, "2": rest}))
        wait_until(lambda: places(host)[0] != everywhere, _FALLS_BACK_S)
        where, answered = places(host)
        assert answered
        assert sorted(parse_cpus(where, "front_end_cpus")) == CPUS[1:]
        wait_until(lambda: main_thread(host) == CPUS[1:], _FALLS_BACK_S)
        threads = cpus_of_threads(host)
        assert threads["session-0"] == {(CPUS[0],)}
        apart = {name: found for name, found in threads.items() if name in {"host-control", "thread-starter"}}
        assert set.union(*apart.values()) == {tuple(CPUS)}

        # Promoted: it has the other CPUs to itself.
        host.desire(divided(ranking, 2, {"1": first, "2": rest}))
        wait_until(lambda: main_thread(host) == CPUS[:1], _FALLS_BACK_S)
        assert places(host)[1]

        # A version that runs on the threads of the front end wants all CPUs.
        host.desire({"ranking": ranking})
        wait_until(lambda: main_thread(host) == CPUS and places(host) == (everywhere, True))

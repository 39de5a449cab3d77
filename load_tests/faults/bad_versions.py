# SPDX-License-Identifier: Apache-2.0
"""Deploy versions that end their host, never finish their warm-up, or exhaust its memory, at 0 % of the traffic."""

from __future__ import annotations

import resource
import time
from pathlib import Path

from load_tests.faults.case import Case
from load_tests.faults.clients import MODEL

__all__ = ["aborts", "eats_memory", "hangs"]

_BAD = 50
#: From its deployment until a version is permanently given up: two crashes, and a start after each.
_GIVEN_UP_S = 60.0
_MEMORY_LEFT = 2 << 30


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def aborts(case: Case) -> None:
    """Deploy a version whose graph aborts the process."""
    with case.stage(options=["--allow-op", "Abort"]) as stage:
        with stage.fault():
            stage.client.deploy(MODEL, case.models / "aborts", version=_BAD, traffic=0)
            seen = stage.wait_state(_BAD, ["failed"], _GIVEN_UP_S)
            case.found.figures["reason"] = seen.get("error")
        restarts = sum(int(host["restarts"]) for host in stage.client.status()["hosts"])
        case.found.figures["deaths"] = restarts
        case.expect(restarts <= 3, f"{restarts} deaths of the host, expected at most 3")
        stage.works(2)


def hangs(case: Case) -> None:
    """Deploy a version whose warm-up never ends, deploy another one, and remove the first."""
    with case.stage() as stage:
        with stage.fault():
            stage.client.deploy(MODEL, case.models / "hangs", version=_BAD, traffic=0)
            stage.wait_state(_BAD, ["warming"], 30)
            begun = time.monotonic()
            stage.works(2)
            case.found.figures["deploy_beside_s"] = round(time.monotonic() - begun, 2)
        stage.client.undeploy(MODEL, _BAD)
        stage.service.wait(lambda: _BAD not in stage.service.versions(MODEL), "end of the version", 30)
        pid = stage.service.any_host_pid()
        assert pid is not None
        before = _cpu_s(pid)
        time.sleep(2)
        busy = (_cpu_s(pid) - before) / 2
        case.found.figures["cpus_busy_after"] = round(busy, 2)
        # The clients use some CPU time; a loop uses a whole CPU.
        case.expect(busy < 0.7, f"{busy:.2f} CPUs busy after undeploy, expected what the clients cause")


def eats_memory(case: Case) -> None:
    """Deploy a version whose warm-up uses all the memory that its host may have."""
    with case.stage() as stage:
        pid = stage.service.any_host_pid()
        assert pid is not None
        size = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
        resource.prlimit(pid, resource.RLIMIT_AS, (size + _MEMORY_LEFT, size + _MEMORY_LEFT))
        with stage.fault():
            stage.client.deploy(MODEL, case.models / "eats_memory", version=_BAD, traffic=0)
            # It may fail, or become ready and report a missing warm-up; it must not end the other versions.
            seen = stage.wait_state(_BAD, ["failed", "ready"], _GIVEN_UP_S)
            case.found.figures["state"] = seen.get("state")
            case.found.figures["reason"] = seen.get("error")
            case.found.figures["warmup"] = seen.get("warmup")
            is_reported = seen.get("state") != "ready" or str(seen.get("warmup")).endswith("not warmed up")
            case.expect(is_reported, f"ready, warm-up {seen.get('warmup')}; expected that it was not warmed up")
        stage.works(2)

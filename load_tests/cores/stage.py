# SPDX-License-Identifier: Apache-2.0
"""Start two proxies with one host each, one that divides cores and one that does not, with the same models."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from load_tests._programs import ProgramError
from load_tests.hosts.proxy import Proxy
from load_tests.request_files import ensure_requests, name_model, read_requests, write_requests

__all__ = [
    "BASELINE",
    "MODEL",
    "VARIANT",
    "Stage",
    "cpus_by_version",
    "deploy",
    "open_stage",
    "wait_for_division",
    "wait_for_profiles",
    "write_version_requests",
]

MODEL = "ranking"
BASELINE, VARIANT = 1, 2
_DEPLOY_S = 300.0
_PROFILED_S = 180.0


@dataclass(frozen=True)
class Stage:
    """Contain both proxies.

    Attributes
    ----------
    divided, shared : Proxy
        With `--cores control`, and without.
    requests : dict
        Request files by version.
    """

    divided: Proxy
    shared: Proxy
    model: Path
    requests: dict[int, Path]

    def set_slo(self, milliseconds: float) -> None:
        """Set the SLO of all versions."""
        for proxy in (self.divided, self.shared):
            for version in (BASELINE, VARIANT):
                deploy(proxy, self.model, version, slo_p99_ms=milliseconds)

    def pin(self, cpuset: str) -> None:
        """Pin the baseline to CPUs, or with `auto` let the controller choose them."""
        deploy(self.divided, self.model, BASELINE, cpuset=cpuset)
        self.divided.wait_until_applied(time.time())


def cpus_by_version(proxy: Proxy) -> dict[int, list[int]]:
    """Return the CPUs of each version, as reported by the host of a proxy that divides cores."""
    return {owner["version"]: list(owner["cpus"]) for owner in proxy.client.machine()["owners"]}


def wait_for_division(name: str, proxy: Proxy, seconds: float) -> list[int]:
    """Wait until the baseline has CPUs that it shares with no other version; return them. `name` is for the error.

    Raises
    ------
    ProgramError
        If this does not happen in time.
    """
    until = time.monotonic() + seconds
    cpus: dict[int, list[int]] = {}
    while time.monotonic() < until:
        cpus = cpus_by_version(proxy)
        mine = cpus.get(BASELINE, [])
        others = {cpu for version, some in cpus.items() if version != BASELINE for cpu in some}
        if mine and not others & set(mine):
            return mine
        time.sleep(0.2)
    raise ProgramError("serving-proxy", 0, f"{name}: versions have CPUs {cpus}, expected some for the baseline only")


def deploy(proxy: Proxy, model: Path, version: int, **settings: Any) -> None:
    """Deploy a version or change its settings: one worker thread per CPU, so that no division reloads a version."""
    config = {"session_num": 1, "intra_op_parallelism_threads": 1, "inter_op_parallelism_threads": 1}
    config["worker_threads"] = len(os.sched_getaffinity(0))
    proxy.client.deploy(MODEL, model, version=version, config=config, wait=True, timeout=_DEPLOY_S, **settings)


def write_version_requests(version: int, rows: int, folder: Path, cache: Path) -> Path:
    """Write requests of W2 with `rows` rows that name a version into a folder; return their file."""
    anonymous = read_requests(ensure_requests(cache / "requests", "W2", rows, "tfserving"))
    path = folder / f"requests-{version}-{rows}"
    write_requests(path, [name_model(request, MODEL, version) for request in anonymous])
    return path


def wait_for_profiles(proxy: Proxy) -> None:
    """Wait until a proxy has profiled all versions, because nothing else may run during a measurement.

    Raises
    ------
    ProgramError
        If profiling does not finish in time.
    """
    until = time.monotonic() + _PROFILED_S
    lines: list[str] = []
    while time.monotonic() < until:
        versions = proxy.client.explain(MODEL)["versions"]
        lines = [line for version in versions.values() for line in version if line.startswith("Its figures:")]
        done = [line for line in lines if "measured here" in line or "check point" in line]
        if len(done) == len(versions):
            return
        time.sleep(0.2)
    raise ProgramError("serving-proxy", 0, f"{lines} after {_PROFILED_S:g} s, expected profiles of all versions")


@contextlib.contextmanager
def open_stage(model: Path, rows: int, folder: Path, cache: Path) -> Iterator[Stage]:
    """Start both proxies and deploy a baseline and a variant on each; requests have `rows` rows of W2."""
    requests = {version: write_version_requests(version, rows, folder, cache) for version in (BASELINE, VARIANT)}
    with (
        Proxy("go", folder / "divided", options=("--cores", "control")) as divided,
        Proxy("go", folder / "shared") as shared,
    ):
        stage = Stage(divided, shared, model.resolve(), requests)
        for proxy in (divided, shared):
            for version in (BASELINE, VARIANT):
                deploy(proxy, stage.model, version)
            # Refusals do not affect the guard, but an SLO that is missed on purpose would.
            proxy.client.guard(MODEL, action="off")
        yield stage

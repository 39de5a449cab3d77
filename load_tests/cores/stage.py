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

__all__ = ["BASELINE", "MODEL", "VARIANT", "Stage", "host_config", "open_stage", "wait_for_profiles"]

MODEL = "ranking"
BASELINE, VARIANT = 1, 2
_DEPLOY_S = 300.0
_DIVIDED_S = 30.0
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
    config : dict
        Configuration of all versions.
    """

    divided: Proxy
    shared: Proxy
    model: Path
    requests: dict[int, Path]
    config: dict[str, Any]

    def deploy(self, proxy: Proxy, version: int, **settings: Any) -> None:
        """Deploy a version or change its settings."""
        proxy.client.deploy(
            MODEL, self.model, version=version, config=self.config, wait=True, timeout=_DEPLOY_S, **settings
        )

    def set_slo(self, milliseconds: float) -> None:
        """Set the SLO of all versions."""
        for proxy in (self.divided, self.shared):
            for version in (BASELINE, VARIANT):
                self.deploy(proxy, version, slo_p99_ms=milliseconds)

    def pin(self, cpuset: str) -> None:
        """Pin the baseline to CPUs, or with `auto` let the controller choose them."""
        self.deploy(self.divided, BASELINE, cpuset=cpuset)
        self.divided.wait_until_applied(time.time())

    def cpus_of(self, version: int) -> list[int]:
        """Return the CPUs of a version, as reported by the host of the proxy that divides cores."""
        owners = self.divided.client.machine()["owners"]
        return next((list(owner["cpus"]) for owner in owners if owner["version"] == version), [])

    def wait_for_division(self) -> list[int]:
        """Wait until the baseline has some but not all CPUs and shares them with no other version; return them.

        Raises
        ------
        ProgramError
            If this does not happen in time.
        """
        until = time.monotonic() + _DIVIDED_S
        while time.monotonic() < until:
            mine, others = self.cpus_of(BASELINE), self.cpus_of(VARIANT)
            if mine and not set(mine) & set(others):
                return mine
            time.sleep(0.2)
        raise ProgramError(
            "serving-proxy", 0, f"the baseline has CPUs {mine}, the variant {others}, expected disjoint sets"
        )


def host_config() -> dict[str, Any]:
    """Return the configuration of all versions: one worker thread per CPU, so that no division reloads a version."""
    config: dict[str, Any] = {"session_num": 1, "intra_op_parallelism_threads": 1, "inter_op_parallelism_threads": 1}
    return config | {"worker_threads": len(os.sched_getaffinity(0))}


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
    anonymous = read_requests(ensure_requests(cache / "requests", "W2", rows, "tfserving"))
    requests = {}
    for version in (BASELINE, VARIANT):
        requests[version] = folder / f"requests-{version}"
        write_requests(requests[version], [name_model(request, MODEL, version) for request in anonymous])
    with (
        Proxy("go", folder / "divided", options=("--cores", "control")) as divided,
        Proxy("go", folder / "shared") as shared,
    ):
        stage = Stage(divided, shared, model.resolve(), requests, host_config())
        for proxy in (divided, shared):
            for version in (BASELINE, VARIANT):
                stage.deploy(proxy, version)
            # Refusals do not affect the guard, but an SLO that is missed on purpose would.
            proxy.client.guard(MODEL, action="off")
        yield stage

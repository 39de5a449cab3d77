# SPDX-License-Identifier: Apache-2.0
"""Start hosts with the same models and different divisions of the cores: none, a baseline pool, a plan, control."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from load_tests.cores.moving import SLOW, SLOW_FACTOR, VERSIONS
from load_tests.cores.stage import BASELINE, MODEL, deploy, wait_for_profiles, write_version_requests
from load_tests.hosts.proxy import Proxy

__all__ = ["ARMS", "Arms", "open_arms"]

ARMS = ("none", "pool", "plan", "control")


@dataclass(frozen=True)
class Arms:
    """Contain the proxies, each with a Go host, by what they do: `none` (also for `pool`), `plan` and `control`.

    Attributes
    ----------
    requests : dict of (version, slow) to Path
    """

    proxies: dict[str, Proxy]
    model: Path
    requests: dict[tuple[int, bool], Path]

    def address(self, arm: str) -> str:
        """Return the address of the host of an arm, with the cores divided as the arm demands."""
        if arm in ("none", "pool"):
            self._pin(divided=arm == "pool")
        return self.proxies["none" if arm == "pool" else arm].address

    def set_slo(self, milliseconds: float) -> None:
        """Set the SLO of all versions on all hosts."""
        for proxy in self.proxies.values():
            for version in VERSIONS:
                deploy(proxy, self.model, version, slo_p99_ms=milliseconds)

    def _pin(self, divided: bool) -> None:
        """Give the baseline half of the CPUs, its part of the requests on average, or let all use all of them."""
        every = sorted(os.sched_getaffinity(0))
        half = max(1, len(every) // 2)
        proxy = self.proxies["none"]
        for version in VERSIONS:
            cpus = every[:half] if version == BASELINE else every[half:]
            deploy(proxy, self.model, version, cpuset=",".join(map(str, cpus)) if divided else "auto")
        proxy.wait_until_applied(time.time())


def _write_requests(rows: int, folder: Path, cache: Path) -> dict[tuple[int, bool], Path]:
    requests = {(version, False): write_version_requests(version, rows, folder, cache) for version in VERSIONS}
    requests[SLOW, True] = write_version_requests(SLOW, rows * SLOW_FACTOR, folder, cache)
    return requests


@contextlib.contextmanager
def open_arms(model: Path, rows: int, folder: Path, cache: Path) -> Iterator[Arms]:
    """Start the proxies and deploy the baseline and its variants on each, profiled where cores are divided."""
    requests = _write_requests(rows, folder, cache)
    modes = {"none": "off", "plan": "plan", "control": "control"}
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(len(modes)) as pool:
        waiting = {
            name: pool.submit(
                stack.enter_context, Proxy("go", folder / name, options=("--cores", mode) if mode != "off" else ())
            )
            for name, mode in modes.items()
        }
        arms = Arms({name: proxy.result() for name, proxy in waiting.items()}, model.resolve(), requests)
        for proxy in arms.proxies.values():
            for version in VERSIONS:
                deploy(proxy, arms.model, version)
            # A missed SLO is measured here; the guard would take the variant out.
            proxy.client.guard(MODEL, action="off")
        for name in ("plan", "control"):
            wait_for_profiles(arms.proxies[name])
        yield arms

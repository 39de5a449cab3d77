# SPDX-License-Identifier: Apache-2.0
"""Measure versions that have no profile, once they are ready: one at a time, in idle CPU time next to the serving
hosts.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import os
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cost_model.errors import CostModelError
from cost_model.profiling.fingerprint import fingerprint
from serving_proxy.cores import DeployedTenant, tenants
from serving_proxy.cores.profiles import Profiles
from serving_proxy.cores.stored_profiles import StoredProfiles
from serving_proxy.deploy.control import Control
from serving_proxy.deploy.jobs import Job, Jobs
from serving_proxy.errors import CancelledError, ExhaustedError, PreconditionError
from serving_proxy.records.models import Note, Version
from serving_proxy.records.states import State
from serving_proxy.workers.process import run_worker

log = logging.getLogger("serving_proxy.profiling")

KIND = "profile"
PERIOD_S = 2.0
ROWS = (1, 16, 128, 512)
_SECONDS = 1.5
_WORKER = "serving_proxy.workers.profile_worker"
#: Memory that must stay free after another copy of a model was loaded [bytes].
_SPARE_BYTES = 512 * 2**20
#: Pause before another attempt after a temporary failure [s]: the first, and the longest.
_PAUSE_S, _LONGEST_PAUSE_S = 30.0, 3600.0
_MEMORY = Path("/proc/meminfo")


@dataclass(frozen=True)
class _Failed:
    """The number of failures to measure a version, and when [s] it is tried again: by default never."""

    times: int = 0
    again_at: float = math.inf


_NOT_YET = _Failed(0, -math.inf)


class Profiler:
    """Runs the jobs that measure profiles."""

    def __init__(self, control: Control, jobs: Jobs, profiles: Profiles) -> None:
        self._control = control
        self._jobs = jobs
        self._profiles = profiles
        self._stored = StoredProfiles(control.options.stores.store)
        # Keys: path and time of deployment.
        self._failed: dict[tuple[str, float], _Failed] = {}

    async def run(self) -> None:
        """Look for versions without a profile until the task is cancelled; end at once if cores are not divided."""
        while self._control.options.cores != "off":
            with self._control.recording_faults("profiles"):
                await self.look()
            await asyncio.sleep(PERIOD_S)

    async def look(self) -> None:
        """Begin to measure the next version without a profile, unless a measurement is running."""
        there = tenants(self._control.models)
        await self._profiles.look(there)
        if self._control.closing or any(job.row.kind == KIND for job in self._jobs.running()):
            return
        for tenant in there:
            version = self._control.models[tenant.model].versions[tenant.version]
            known = self._profiles.of(tenant)
            if version.state != State.READY or (known is not None and known.how != "found"):
                continue
            if time.monotonic() >= self._failed.get((tenant.path, version.deployed_at), _NOT_YET).again_at:
                self._jobs.begin(KIND, tenant.model, tenant.version, partial(self._run, tenant=tenant))
                return

    async def _run(self, job: Job, tenant: DeployedTenant) -> None:
        version = self._control.models[tenant.model].versions[tenant.version]
        key = (tenant.path, version.deployed_at)
        try:
            await self._measure(job, tenant, version)
        except asyncio.CancelledError:
            if not self._jobs.closing:
                self._failed[key] = _Failed()
            raise
        except (OSError, CancelledError) as error:
            # Temporary failures: a full disk, too little memory, or a worker that was killed.
            before = self._failed.get(key, _NOT_YET)
            pause_s = min(_LONGEST_PAUSE_S, _PAUSE_S * 2.0**before.times)
            self._failed[key] = _Failed(before.times + 1, time.monotonic() + pause_s)
            if not before.times and self._is_deployed(tenant, version):
                self._note(tenant, f"could not be profiled, and the proxy tries again: {error}")
            raise
        except Exception as error:
            self._failed[key] = _Failed()
            if self._is_deployed(tenant, version):
                self._note(tenant, f"was not profiled, and is planned from its measured requests: {error}")
            raise

    async def _measure(self, job: Job, tenant: DeployedTenant, version: Version) -> None:
        self._check_memory(version)
        folder = self._control.options.profiles
        try:
            graph = await asyncio.to_thread(fingerprint, Path(tenant.path))
        except CostModelError as error:
            raise PreconditionError(str(error)) from error
        key = f"{graph}-{hashlib.sha256(tenant.path.encode()).hexdigest()[:8]}"
        # Written to a separate folder first, because unfinished profiles must not be used for plans.
        out = folder / "unfinished" / f"{key}.json"
        await asyncio.to_thread(out.parent.mkdir, parents=True, exist_ok=True)
        reuse = await asyncio.to_thread(self._profiles.of_graph, graph)
        if reuse is None:
            # Given with the version on another machine, or measured on one: like a profile of this machine, it is used
            # only if a measured point confirms it.
            reuse = await asyncio.to_thread(
                self._stored.fetch_given, version.stored, graph, folder, lambda: self._control.remote.machine
            ) or await asyncio.to_thread(self._stored.fetch, graph, folder)
        asked = {
            "model": tenant.path,
            "out": str(out),
            "reuse": None if reuse is None else str(reuse),
            "rows": ROWS,
            "seconds": _SECONDS,
            "cpus": self._control.host_settings.maintenance_cpus,
        }
        answer = await run_worker(
            _WORKER, asked, f"profile of {tenant.name}", lambda step, *rest: job.report(f"profiling: {step}", *rest)
        )
        if not self._is_deployed(tenant, version):
            raise CancelledError(f"{tenant.name}: undeployed")
        if reuse is not None and answer["result"]["reused"]:
            out.unlink()
            await self._profiles.record(tenant.path, reuse, "checked")
            self._note(tenant, f"has the profile {reuse.name} of the same graph: one measured point confirms it")
        else:
            file = out.replace(folder / out.name)
            await self._profiles.record(tenant.path, file, "measured")
            await asyncio.to_thread(self._stored.put, graph, file)
            self._note(tenant, f"was profiled with {', '.join(map(str, ROWS))} rows: {file.name}")

    def _is_deployed(self, tenant: DeployedTenant, version: Version) -> bool:
        """Return whether the version that was measured is still deployed."""
        model = self._control.models.get(tenant.model)
        now = None if model is None else model.versions.get(tenant.version)
        return now is not None and now.deployed_at == version.deployed_at and now.desired

    def _check_memory(self, version: Version) -> None:
        """Raise ExhaustedError if there is too little memory for another copy of the model."""
        needed = (version.bytes or 0) + _SPARE_BYTES
        free = _available_bytes()
        if free < needed:
            raise ExhaustedError(
                f"{free / 2**20:,.0f} MB of memory are free, expected {needed / 2**20:,.0f} to load the model once more"
            )

    def _note(self, tenant: DeployedTenant, what: str) -> None:
        note = Note(kind=KIND, message=f"{tenant.name}: {what}", model=tenant.model, version=tenant.version)
        self._control.store([], [note])


def _available_bytes() -> int:
    """Return the memory that is available to programs [bytes]."""
    for line in _MEMORY.read_text(encoding="ascii").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

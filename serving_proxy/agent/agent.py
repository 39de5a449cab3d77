# SPDX-License-Identifier: Apache-2.0
"""Follow the proxy's state: accept newer ones, fetch what they name, and write what the hosts are to serve."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cost_model.errors import MachineError
from serving_proxy.agent.artifacts import Artifacts
from serving_proxy.agent.cores import DividedCores, divide, machine_of, with_cores
from serving_proxy.agent.desired import LocalDesired
from serving_proxy.agent.fetches import Fetches
from serving_proxy.agent.inputs import Inputs
from serving_proxy.agent.link import Link
from serving_proxy.agent.localize import (
    NO_WARMUP,
    WARMUP,
    file_key,
    inputs_key,
    localize,
    lost_warmups,
    of_machine,
    origin_of,
    wanted_files,
)
from serving_proxy.agent.memory import Memory
from serving_proxy.agent.timelines import StoredTimelines
from serving_proxy.errors import ProxyError
from serving_proxy.records.agents import MachineState
from serving_proxy.records.features import Understood, understood
from serving_proxy.records.hosts import HostSeen

log = logging.getLogger("serving_proxy.agent")

_FIRST_RETRY_S = 0.1
_LONGEST_RETRY_S = 1.0
# A proxy whose states are refused is asked again after this time.
_REFUSED_S = 2.0
_FULL_DISK_S = 2.0


class Agent:
    """The part of an agent that follows the proxy.

    Parameters
    ----------
    state_dir : Path
    link : Link
    artifacts : Artifacts
    longest_retry_s : float [s]
        Longest time between two attempts to fetch files.
    timelines : StoredTimelines, optional
        Copies the timelines in stores.

    Attributes
    ----------
    changed : asyncio.Event
        Set when there is something to report.
    applied : (int, int)
        The (term, generation) that the hosts were told last.
    understood : Understood
        What the hosts of this machine understand of it.
    refused : str or None
        Why the state of the proxy is refused.
    cores_fault : str
        Why versions do not have the cores of the placement; "": they have.
    """

    def __init__(
        self,
        state_dir: Path,
        link: Link,
        artifacts: Artifacts,
        longest_retry_s: float,
        timelines: StoredTimelines | None = None,
    ) -> None:
        self.memory = Memory.read(state_dir)
        self.changed = asyncio.Event()
        self.applied = (0, 0)
        self.understood = Understood({})
        self.refused: str | None = None
        self.cores_fault = ""
        # Whether hosts have had a complete state; a state on disk counts as one.
        self._has_first = True
        self._cpus = frozenset(os.sched_getaffinity(0))
        self._hosts: tuple[HostSeen, ...] = ()
        self._link = link
        self._timelines = timelines
        self._desired = LocalDesired(state_dir)
        self._desired.keep_hosts_waiting()
        self._wake = asyncio.Event()
        self.fetches = Fetches(artifacts, self.memory.paths, self._wake.set, longest_retry_s)
        # Not remembered: what is there is found again.
        self._local_inputs: dict[str, str] = {}
        self._inputs = Inputs(state_dir / "warmups", link)
        self._input_fetches = Fetches(self._inputs, self._local_inputs, self._wake.set, longest_retry_s, inputs_key)

    @property
    def origins(self) -> dict[str, str]:
        """Return the path that the proxy knows by local path; one of several if models share a folder here."""
        return {local: origin_of(key) for key, local in self.memory.paths.items()}

    @property
    def origins_of_versions(self) -> dict[tuple[str, str], str]:
        """Return the path that the proxy knows by `model/version` and local path."""
        wanted = {} if self.memory.state is None else wanted_files(self.memory.state.desired)
        local = {name: self.memory.paths.get(file_key(entry)) for name, entry in wanted.items()}
        return {(name, path): wanted[name]["path"] for name, path in local.items() if path is not None}

    @property
    def fetching(self) -> dict[str, str]:
        """Return how far the transfers of files and of warm-up files are, by `model/version`."""
        return self._input_fetches.running | self.fetches.running

    @property
    def failed(self) -> dict[str, str]:
        """Return why files are not there, by `model/version`."""
        return self._input_fetches.failed | self.fetches.failed

    @property
    def left_out(self) -> tuple[str, ...]:
        """Return what hosts here are not told, and why."""
        state = self.memory.state
        if state is None or NO_WARMUP not in self._local_inputs.values():
            return self.understood.left_out
        return (*self.understood.left_out, *lost_warmups(wanted_files(state.desired), self._local_inputs))

    async def remove_unused(self) -> None:
        """Remove warm-up files that neither the state nor the hosts need."""
        served = {str(entry.get(WARMUP)) for entry in wanted_files(self._desired.body or {}).values()}
        await asyncio.to_thread(self._inputs.remove_unused, served | set(self._local_inputs.values()))

    def know_hosts(self, hosts: Sequence[HostSeen]) -> None:
        """Write another `desired.json` if hosts of another release have come or gone."""
        live = tuple(
            HostSeen(host.name, True, version=host.version, features=host.features) for host in hosts if host.alive
        )
        if live != self._hosts:
            self._hosts = live
            self._wake.set()

    async def follow(self) -> None:
        """Accept the states of the proxy until the task is cancelled."""
        delay, has_asked = _FIRST_RETRY_S, False
        while True:
            try:
                # At first the state is asked for in any case: the agent may have been killed before it wrote it.
                state = await self._link.desired(self.memory.order if has_asked else None)
            except ProxyError as error:
                self._link.faults.failed("desired", str(error))
                # Many agents lose the same proxy at the same moment.
                await asyncio.sleep(delay * random.uniform(0.5, 1.0))
                delay = min(2 * delay, _LONGEST_RETRY_S)
                continue
            self._link.faults.answered("desired", self._link.server)
            delay = _FIRST_RETRY_S
            if state is None:
                continue
            has_asked = self.accept(state)
            if not has_asked:
                await asyncio.sleep(_REFUSED_S)

    def accept(self, state: MachineState) -> bool:
        """Accept a state unless it is older than one that was accepted before, and return whether it was."""
        known, before = self.memory.order, self.memory.state
        is_other = before is not None and state.order == known and state.desired != before.desired
        if state.order < known or is_other:
            refused = (
                f"term {state.term}, generation {state.generation} of {self._link.server} is "
                f"{'another state than' if is_other else 'older than'} term {known[0]}, generation {known[1]}, "
                "which was followed before"
            )
            if refused != self.refused:
                log.error("refused: %s", refused)
                self.refused = refused
                self.changed.set()
            return False
        self.refused = None
        if state != self.memory.state:
            self.memory.state = state
            log.info("new state", extra={"term": state.term, "generation": state.generation})
        self._wake.set()
        return True

    def see_cpus(self, cpus: frozenset[int]) -> None:
        """Divide the CPUs that hosts report, which may be others than those of the agent."""
        if cpus and cpus != self._cpus:
            self._cpus = cpus
            self._wake.set()

    async def apply(self) -> None:
        """Write what the hosts are to serve, until the task is cancelled."""
        self._wake.set()
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self.memory.state is None:
                continue
            try:
                self._apply(self.memory.state)
            except ProxyError as error:
                log.error("%s", error)
                await asyncio.sleep(_FULL_DISK_S)
                self._wake.set()

    def _apply(self, state: MachineState) -> None:
        # What hosts of other machines are to do may need features that those here lack.
        known = understood(of_machine(state.desired, self._link.machine), self._hosts)
        if known.left_out != self.understood.left_out or known.versions != self.understood.versions:
            for reason in (*known.left_out, *(f"{name}: {why}" for name, why in known.versions.items())):
                log.warning("%s", reason)
        self.understood = known
        wanted = {name: entry for name, entry in wanted_files(state.desired).items() if name not in known.versions}
        self.fetches.want(wanted)
        self._input_fetches.want(wanted)
        needed = {inputs_key(entry) for entry in wanted.values()}
        for key in self._local_inputs.keys() - needed:
            del self._local_inputs[key]
        desired = known.desired if self._timelines is None else self._timelines.localize(known.desired)
        body = localize(desired, self.memory.paths, self._desired.body, known.versions, self._local_inputs)
        body = self._divided(body, state)
        is_complete = not self.fetching and body["models"].keys() == state.desired["models"].keys()
        is_drained = bool(body.get("hosts", {}).get("*", {}).get("drained"))
        self._has_first = is_complete or (self._has_first and self._desired.body is not None)
        if not self._has_first and not is_drained:
            # Hosts are ready once they have loaded their first state, so it must be complete. Drained ones end.
            self.memory.write()
            self.changed.set()
            return
        used = {entry["path"] for entry in wanted_files(body).values()} | {file_key(entry) for entry in wanted.values()}
        for key, local in list(self.memory.paths.items()):
            if key not in used and local not in used:
                del self.memory.paths[key]
        # First what must not be forgotten: an older state is refused even if the agent is killed between the two.
        self.memory.write()
        if self._desired.write(state.generation, body):
            log.info("desired.json written", extra={"generation": state.generation})
        self.applied = state.order
        self.changed.set()

    def _divided(self, body: dict[str, Any], state: MachineState) -> dict[str, Any]:
        """Return what hosts are to serve, with the CPUs of each version if the proxy has placed cores."""
        divided = DividedCores({})
        if state.cores:
            try:
                divided = divide(state.cores, list(wanted_files(body)), machine_of(self._cpus))
            except MachineError as error:
                divided = DividedCores({}, str(error))
        if divided.fault != self.cores_fault:
            self.cores_fault = divided.fault
            log.warning("cores: %s", divided.fault or "as placed")
        # Also without placed cores: those of an earlier placement end.
        return with_cores(body, state.desired, divided.cpus, len(self._cpus))


async def run_until(ended: asyncio.Event, *loops: asyncio.Task[None]) -> None:
    """Wait for an event, or for the first task that ends by an error, which is raised; then cancel the tasks."""
    waiting = asyncio.create_task(ended.wait())
    try:
        done, _ = await asyncio.wait([waiting, *loops], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {waiting}:
            task.result()
    finally:
        for task in (waiting, *loops):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

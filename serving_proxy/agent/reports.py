# SPDX-License-Identifier: Apache-2.0
"""Report what the hosts of a machine do: at once when it changes, and otherwise as often as the proxy wants."""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from serving_proxy.agent.agent import Agent
from serving_proxy.agent.link import Link
from serving_proxy.agent.logs import LogAnswers
from serving_proxy.artifacts.warmups import WARMUPS_FEATURE
from serving_proxy.errors import ProxyError
from serving_proxy.records.agents import AgentReport, HostReport
from serving_proxy.records.hosts import HUNG, HostSeen
from serving_proxy.records.machine_logs import LOGS_FEATURE
from serving_proxy.state_dir.actual import ActualFiles
from serving_proxy.system.cpus import read_cpus
from serving_proxy.system.files import read_regular
from serving_proxy.version import version

_LOOK_S = 0.2
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.25, 8.0
_MOST_BYTES = 64 * 1024 * 1024
FEATURES = (LOGS_FEATURE, WARMUPS_FEATURE)
"""What this agent can do besides what agents of the first release do."""


class Reporter:
    """Reads the files of the hosts, and sends what they contain.

    Parameters
    ----------
    state_dir : Path
    link : Link
    agent : Agent
    address : str
        Address at which clients reach the hosts of the machine.
    logs : LogAnswers, optional
        Answers the questions of the proxy.
    """

    def __init__(
        self, state_dir: Path, link: Link, agent: Agent, address: str = "", logs: LogAnswers | None = None
    ) -> None:
        self._files = ActualFiles(state_dir)
        self._link = link
        self._agent = agent
        self._address = address
        self._logs = logs
        self._name = secrets.token_hex(8)
        self._version = version()
        self._actual: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {}
        # What the proxy has: the stamp of each host's `actual.json`, and all else that matters at once.
        self._told: dict[str, tuple[int, ...]] = {}
        self._told_state: Any = None
        self._has_failed = False
        # Before the first desired.json is written for them.
        self._look()
        self._retry_s = _FIRST_RETRY_S

    async def run(self) -> None:
        """Report until the task is cancelled."""
        due, stats_due, not_before, server = 0.0, 0.0, 0.0, ""
        while True:
            if server != self._link.server:
                self._told, stats_due = {}, 0.0
            hosts, stamps, state = self._look()
            now = time.monotonic()
            if now >= not_before and (now >= due or stamps != self._told or state != self._told_state):
                with_stats = now >= stats_due
                report_in, stats_in = await self._send(self._report(hosts, stamps, with_stats), stamps, state)
                server, now = self._link.server, time.monotonic()
                # Machines that were started together must not report together.
                due = now + report_in * random.uniform(0.8, 1.0)
                stats_due = now + stats_in * random.uniform(0.8, 1.0) if with_stats else stats_due
                not_before = due if self._has_failed else 0.0
            with_changes = asyncio.create_task(self._agent.changed.wait())
            await asyncio.wait([with_changes], timeout=_LOOK_S)
            with_changes.cancel()
            self._agent.changed.clear()

    async def _send(self, report: AgentReport, stamps: dict[str, tuple[int, ...]], state: Any) -> tuple[float, float]:
        """Send a report, and return when the next one is due, and when statistics are due again [s]."""
        try:
            answer = await self._link.report(report)
        except ProxyError as error:
            self._link.faults.failed("report", str(error))
            self._has_failed, self._told, self._told_state = True, {}, None
            self._retry_s = min(2 * self._retry_s, _LONGEST_RETRY_S)
            return self._retry_s, 0.0
        self._link.faults.answered("report", self._link.server)
        self._has_failed, self._retry_s = False, _FIRST_RETRY_S
        self._told = {host: stamp for host, stamp in stamps.items() if host not in answer.unknown}
        self._told_state = state
        if self._logs is not None:
            self._logs.take(answer.asked)
        return answer.report_in, answer.stats_in

    def _look(self) -> tuple[list[HostSeen], dict[str, tuple[int, ...]], Any]:
        """Return the hosts, the stamps of their `actual.json`, and all else that is reported at once."""
        hosts, stamps = [], {}
        all_hosts = self._files.read()
        self._agent.know_hosts(all_hosts)
        for seen in all_hosts:
            stamp, actual = self._read_actual(seen.name)
            if actual:
                hosts.append(seen)
                stamps[seen.name] = stamp
        agent = self._agent
        agent.see_cpus(frozenset().union(*(read_cpus(seen.cpus) for seen in hosts if seen.alive)))
        urgent = {seen.name: (seen.alive, seen.state == HUNG) for seen in hosts}
        beyond = (agent.understood.versions, agent.left_out)
        fetches = (agent.failed, sorted(agent.fetching), beyond)
        return hosts, stamps, (urgent, agent.applied, agent.memory.order, agent.refused, agent.cores_fault, fetches)

    def _report(
        self, hosts: Iterable[HostSeen], stamps: Mapping[str, tuple[int, ...]], with_stats: bool
    ) -> AgentReport:
        agent, (term, generation), highest = self._agent, self._agent.applied, self._agent.memory.order
        origins, of_versions = agent.origins, agent.origins_of_versions
        return AgentReport(
            agent=self._name,
            version=self._version,
            address=self._address,
            cpus=len(os.sched_getaffinity(0)),
            memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            term=term,
            generation=generation,
            highest_term=highest[0],
            highest_generation=highest[1],
            refused=agent.refused,
            cores_fault=agent.cores_fault,
            fetching=agent.fetching,
            failed=agent.failed | agent.understood.versions,
            left_out=agent.left_out,
            features=FEATURES,
            hosts={
                seen.name: HostReport(
                    alive=seen.alive,
                    hung=seen.state == HUNG,
                    actual=None
                    if self._told.get(seen.name) == stamps[seen.name]
                    else with_origins(self._actual[seen.name][1], origins, of_versions),
                    stats=seen.stats if with_stats else {},
                    counted_at=seen.counted_at,
                )
                for seen in hosts
            },
        )

    def _read_actual(self, name: str) -> tuple[tuple[int, ...], dict[str, Any]]:
        path = self._files.folder / name / "actual.json"
        before = self._actual.get(name, ((), {}))
        try:
            found = path.stat()
            stamp = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            if stamp == before[0]:
                return before
            data = json.loads(read_regular(path, _MOST_BYTES))
        except (OSError, ProxyError, ValueError, RecursionError):
            return before
        self._actual[name] = stamp, data if isinstance(data, dict) else {}
        return self._actual[name]


def with_origins(
    actual: Mapping[str, Any], origins: Mapping[str, str], of_versions: Mapping[tuple[str, str], str] | None = None
) -> dict[str, Any]:
    """Return an `actual.json` with the paths that the proxy knows instead of local ones.

    Parameters
    ----------
    actual : dict
    origins : mapping of str to str
        By local path.
    of_versions : mapping of (str, str) to str, optional
        By `model/version` and local path; they come first, since models that have the same files share a local folder.
    """
    first = of_versions or {}

    def version(name: str, entry: Any) -> Any:
        if not isinstance(entry, dict):
            return entry
        found = dict(entry)
        if path := entry.get("path"):
            found["path"] = first.get((name, path)) or origins.get(path, path)
        if found.get("replacement"):
            found["replacement"] = version(name, found["replacement"])
        return found

    def model(name: str, entry: Any) -> Any:
        if not isinstance(entry, dict) or not isinstance(entry.get("versions"), dict):
            return entry
        versions = entry["versions"].items()
        return {**entry, "versions": {number: version(f"{name}/{number}", found) for number, found in versions}}

    models = actual.get("models")
    if not isinstance(models, dict):
        return dict(actual)
    return {**actual, "models": {name: model(name, entry) for name, entry in models.items()}}

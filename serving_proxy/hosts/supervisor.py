# SPDX-License-Identifier: Apache-2.0
"""Keep the hosts of a state directory running.

Each host has a session of its own, so it continues when the proxy is killed, and the next proxy recognizes it by pid
and start time. A host that was not started by a proxy is adopted: it is watched, and never signaled.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable

from serving_proxy.deploy.control import Control
from serving_proxy.errors import NotFoundError, PreconditionError, ProxyError
from serving_proxy.hosts.backoff import delay, failures_after
from serving_proxy.hosts.command import LaunchOptions, host_command
from serving_proxy.hosts.host_log import bound_log, last_line, open_log
from serving_proxy.hosts.host_process import HostProcess
from serving_proxy.hosts.views import HostView
from serving_proxy.records.hosts import HostSeen
from serving_proxy.state_dir.actual import is_alive, process_ticks
from serving_proxy.store.repository import HostRow

log = logging.getLogger("serving_proxy.supervisor")

POLL_S = 0.2
_LOG_CHECK_S = 10.0
# A file in a host's folder: its process was killed on purpose, so the version that it was loading is not to blame.
KILLED = "killed"
# Hosts get the same limit; cancelling their last requests and exiting takes a moment longer.
_GRACE_S = 2.0
# A process that was stopped by a signal cannot continue until another signal resumes it.
_STOPPED_S = 5.0


class Supervisor:
    """Starts and watches the hosts; starts none while `held` returns true."""

    def __init__(self, control: Control, options: LaunchOptions, held: Callable[[], bool] = lambda: False) -> None:
        self._control = control
        self._options = options
        self._folder = control.options.state_dir / "hosts"
        self._hosts = {name: HostProcess(name) for name in options.names}
        self._rows = control.repository.hosts()
        self._known: set[str] = set()
        self._next_log_check = 0.0
        self._drain_all = False
        self._held = held
        for name, row in self._rows.items():
            if process_ticks(row.pid) == row.started_ticks:
                self._take_over(name, row)

    @property
    def draining(self) -> bool:
        """Return whether all hosts are draining or drained."""
        return self._drain_all

    async def run(self) -> None:
        """Watch the hosts until the task is cancelled."""
        while True:
            with self._control.recording_faults("supervisor"):
                self.step()
            await asyncio.sleep(POLL_S)

    def step(self) -> None:
        """Check every host once, and start those that are to run but do not."""
        seen = {host.name: host for host in self._control.hosts}
        for host in self._hosts.values():
            self._watch(host, seen.get(host.name))
        self._note_others(seen)
        if time.monotonic() >= self._next_log_check:
            self._next_log_check = time.monotonic() + _LOG_CHECK_S
            for name in self._hosts:
                bound_log(self._folder / name)

    def drain(self, name: str | None, drained: bool) -> None:
        """Stop hosts that this proxy started, after their last requests; or let them start again.

        Raises
        ------
        NotFoundError, PreconditionError
            There is no such host, or this proxy did not start it.
        """
        hosts = list(self._hosts.values()) if name is None else [self._own_host(name)]
        if name is None:
            self._drain_all = drained
        for host in hosts:
            if host.drained != drained:
                host.drained, host.failures, host.start_at = drained, 0, 0.0
                said = "drains" if drained else "starts again"
                self._control.note("drain", f"{host.name}: {said}")
                if not drained and host.row is None and not host.adopted:
                    host.note = said
                if drained and host.row is not None and not host.adopted:
                    host.signal(signal.SIGTERM)

    async def stop(self, limit_s: float) -> None:
        """Stop the hosts that this proxy started: they report not ready, finish their requests, and exit.

        Hosts that still run two seconds after `limit_s` are killed.
        """
        ours = [host for host in self._hosts.values() if host.row is not None and not host.adopted]
        for host in ours:
            host.drained = True
            host.signal(signal.SIGTERM)
        deadline = time.monotonic() + limit_s + _GRACE_S
        while time.monotonic() < deadline and any(host.runs for host in ours):
            await asyncio.sleep(0.05)
        for host in ours:
            if host.runs:
                self._control.note("host", f"{host.name}: killed, because it had not drained after {limit_s:g} s")
                self.kill(host.name)
                if host.child is not None:
                    await asyncio.to_thread(host.child.wait)

    def kill(self, name: str) -> None:
        """Kill a host that this proxy started, and leave a mark that the version it was loading is not to blame."""
        host = self._hosts[name]
        with contextlib.suppress(OSError):
            (self._folder / name / KILLED).touch()
        host.signal(signal.SIGKILL)

    def views(self) -> list[HostView]:
        """Return the views of all hosts."""
        seen = {host.name: host for host in self._control.hosts}
        names = sorted({*seen, *self._hosts})
        return [self._view(name, seen.get(name)) for name in names]

    def _view(self, name: str, seen: HostSeen | None) -> HostView:
        host = self._hosts.get(name)
        ours = host is not None and not host.adopted
        state = "stopped" if seen is None or not seen.alive else seen.state
        if host is not None and host.child is not None and state == "stopped" and host.runs:
            state = "starting"
        if host is not None and ours and host.drained and state not in {"starting", "stopped"}:
            # It has been signaled, and reports the state itself a moment later.
            state = "draining"
        note = "" if host is None else host.note
        if seen is not None and seen.alive:
            note = seen.desired_error or (f"waits {seen.waiting}" if seen.waiting else note)
        if {name, f"{name.partition('/')[0]}/*"} & {*self._control.host_settings.drained}:
            note = "drained: not ready until `drain --off`"
        return HostView(
            name=name,
            alive=seen is not None and seen.alive,
            origin="started" if ours else "agent" if seen is not None and seen.machine else "adopted",
            pid=seen.pid if seen is not None and seen.alive else 0,
            version="" if seen is None else seen.version,
            state=state,
            generation=0 if seen is None else seen.generation,
            desired_error=None if seen is None else seen.desired_error,
            started="" if seen is None else seen.started,
            cpus="" if seen is None else seen.cpus,
            endpoints={} if seen is None else seen.endpoints,
            restarts=0 if host is None else host.restarts,
            note=note,
        )

    def _watch(self, host: HostProcess, seen: HostSeen | None) -> None:
        if host.row is not None:
            if host.runs:
                self._end_if_hung(host, host.row.pid)
                host.was_ready |= seen is not None and seen.pid == host.row.pid and seen.state == "ready"
                return
            self._handle_exit(host)
        if self._is_foreign(host, seen):
            if not host.adopted:
                host.adopted, host.note = True, "not started by this proxy"
                self._control.note("host", f"{host.name}: adopted, process {seen.pid if seen else '?'} has its lock")
            return
        if host.adopted:
            host.adopted, host.note = False, ""
            self._control.note("host", f"{host.name}: the adopted process is gone")
        if host.drained or self._control.closing or time.monotonic() < host.start_at:
            return
        if self._held():
            host.note = "waits until the first models of the configuration can be loaded"
            return
        self._held = lambda: False
        self._start(host)

    def _end_if_hung(self, host: HostProcess, pid: int) -> None:
        """Kill a host that gives no sign of life: this frees its ports, and it is restarted."""
        limit = self._options.hang_seconds
        silent, stopped = self._control.actual.liveness.silence(host.name, pid)
        if not limit or host.killed or not (silent >= limit or stopped >= min(limit, _STOPPED_S)):
            return
        how = (
            f"stopped for {stopped:.0f} s"
            if stopped >= min(limit, _STOPPED_S)
            else f"no sign of life for {silent:.0f} s"
        )
        host.killed = how
        self._control.note("host", f"{host.name}: killed ({how})")
        self.kill(host.name)

    def _is_foreign(self, host: HostProcess, seen: HostSeen | None) -> bool:
        return seen is not None and is_alive(self._folder / host.name / "lock", seen.pid)

    def _start(self, host: HostProcess) -> None:
        try:
            command = host_command(self._options, self._control.options.state_dir, host.name)
            output = open_log(self._folder / host.name)
            try:
                child = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
                )
            finally:
                os.close(output)
        except (OSError, NotFoundError) as error:
            self._schedule_restart(host, f"{host.name}: cannot be started, {error}")
            return
        host.child, host.started = child, time.monotonic()
        ticks = process_ticks(child.pid) or 0
        host.row = HostRow(host.name, child.pid, ticks, command, host.restarts)
        host.note = ""
        with contextlib.suppress(ProxyError):
            # On a full disk the host runs all the same; a later proxy adopts it as one that it did not start.
            self._control.repository.save_host(host.row)
        self._control.note("host", f"{host.name}: started, process {child.pid}")

    def _handle_exit(self, host: HostProcess) -> None:
        code = None if host.child is None else host.child.poll()
        host.row, host.child = None, None
        killed, host.killed = host.killed, ""
        if host.drained:
            host.note = "drained"
            self._control.note("host", f"{host.name}: drained")
            return
        how = "ended" if code is None else f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        said = last_line(self._folder / host.name)
        if killed:
            how, said = f"killed ({killed})", ""
        host.restarts += 1
        self._schedule_restart(host, f"{host.name}: {how}" + (f", '{said}'" if said else ""))

    def _schedule_restart(self, host: HostProcess, message: str) -> None:
        ran = time.monotonic() - host.started if host.started else 0.0
        host.failures = failures_after(host.failures, ran, host.was_ready)
        host.started, host.was_ready = 0.0, False
        wait = delay(host.failures)
        host.start_at = time.monotonic() + wait
        host.note = message
        self._control.note("host", f"{message}; restarted in {wait:g} s")

    def _take_over(self, name: str, row: HostRow) -> None:
        """Take over a host that an earlier proxy of this directory has started."""
        host = self._hosts.get(name)
        if host is None:
            self._control.note("host", f"{name}: process {row.pid} is no longer needed, and drains")
            with contextlib.suppress(ProcessLookupError):
                os.kill(row.pid, signal.SIGTERM)
            return
        host.row, host.restarts, host.started = row, row.restarts, time.monotonic()
        with contextlib.suppress(NotFoundError):
            if row.command != host_command(self._options, self._control.options.state_dir, name):
                host.note = (
                    "runs with the options of an earlier proxy; `drain` and restart it to apply the present options"
                )
        self._control.note("host", f"{name}: found running, process {row.pid}")

    def _note_others(self, seen: dict[str, HostSeen]) -> None:
        """Record hosts that appear and disappear, and that this proxy does not manage."""
        live = {name for name, host in seen.items() if host.alive and name not in self._hosts and not host.machine}
        for name in sorted(live - self._known):
            self._control.note("host", f"{name}: adopted, process {seen[name].pid}")
        for name in sorted(self._known - live):
            self._control.note("host", f"{name}: the adopted process is gone")
        self._known = live

    def _own_host(self, name: str) -> HostProcess:
        host = self._hosts.get(name)
        if host is None and any(seen.name == name for seen in self._control.hosts):
            raise PreconditionError(f"{name}: not started by this proxy, expected its owner to stop it")
        if host is None:
            raise NotFoundError(f"host '{name[:80]}': unknown, expected one of {', '.join(self._hosts) or 'none'}")
        if host.adopted:
            raise PreconditionError(f"{name}: not started by this proxy, expected its owner to stop it")
        return host

# SPDX-License-Identifier: Apache-2.0
"""Keep the host of a replica running, on CPUs of its own, as a child that does not outlive the replica."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from serving_proxy.errors import ProxyError
from serving_proxy.hosts.backoff import delay, failures_after
from serving_proxy.hosts.command import LaunchOptions, host_command
from serving_proxy.hosts.host_log import bound_log, last_line, open_log
from serving_proxy.hosts.supervisor import KILLED
from serving_proxy.ray_driver.core_lease import CoreLease
from serving_proxy.records.hosts import HostSeen
from serving_proxy.state_dir.actual import ActualFiles, is_alive
from serving_proxy.system.files import read_regular
from serving_proxy.system.files import replace as replace_file

log = logging.getLogger("serving_proxy.replica")

HOST = "host-0"
_BOUND = Path(__file__).with_name("bound.py")
_LOG_CHECK_S = 10.0
# Cancelling the last requests and exiting takes a moment longer than they may take.
_GRACE_S = 2.0


class HostKeeper:
    """Starts the host once the agent has written what it is to serve, and again whenever it ends.

    All calls of `step` must come from one thread that lives as long as the process: the host ends with it.

    Parameters
    ----------
    options : LaunchOptions
    state_dir : Path
    lease : CoreLease
    """

    def __init__(self, options: LaunchOptions, state_dir: Path, lease: CoreLease) -> None:
        self._options = options
        self._state_dir = state_dir
        self._folder = state_dir / "hosts" / HOST
        self._ports = state_dir / "ports.json"
        self._lease = lease
        self._files = ActualFiles(state_dir)
        self._child: subprocess.Popen[bytes] | None = None
        self._started = self._start_at = self._next_log_check = 0.0
        self._failures = 0
        self._was_ready = False
        self._ready_since: float | None = None
        # CPU time of hosts that have ended, and of the present one [s].
        self._cpu_before_s = self._cpu_now_s = 0.0
        self._killed = ""
        self._other_since: float | None = None
        self._drain_since: float | None = None
        # The last signal that the child was sent because of the drain.
        self._sent: signal.Signals | None = None
        self.restarts = 0
        self.note = ""
        self.seen: HostSeen | None = None

    @property
    def state(self) -> str:
        """Return the state of the host; `stopped` if there is none."""
        if self._child is None or self.seen is None or self.seen.pid != self._child.pid:
            return "stopped" if self._child is None else "starting"
        return self.seen.state if self.seen.alive else "stopped"

    @property
    def ready_s(self) -> float:
        """Return how long the host has been ready [s]."""
        return 0.0 if self._ready_since is None else time.monotonic() - self._ready_since

    @property
    def cpu_s(self) -> float:
        """Return the CPU time of all hosts of this replica [s]; it never decreases."""
        return self._cpu_before_s + self._cpu_now_s

    @property
    def drained(self) -> bool:
        """Return whether the host has ended and is not started again."""
        return self._drain_since is not None and self._child is None

    @property
    def drains(self) -> bool:
        """Return whether the host is to end."""
        return self._drain_since is not None

    def drain(self) -> None:
        """Let the host finish its requests and end."""
        if self._drain_since is None:
            self._drain_since = time.monotonic()

    def step(self) -> None:
        """Check the host once."""
        self.seen = next((seen for seen in self._files.read() if seen.name == HOST), None)
        if self.state != "ready":
            self._ready_since = None
        elif self._ready_since is None:
            self._ready_since = time.monotonic()
        if time.monotonic() >= self._next_log_check:
            self._next_log_check = time.monotonic() + _LOG_CHECK_S
            bound_log(self._folder)
        if self._child is not None:
            self._cpu_now_s = max(self._cpu_now_s, _cpu_seconds(self._child.pid))
            self._watch(self._child)
        elif not self.drains and time.monotonic() >= self._start_at and self._may_start():
            self._start()

    def _watch(self, child: subprocess.Popen[bytes]) -> None:
        code = child.poll()
        if code is not None:
            self._handle_exit(code)
            return
        if self._drain_since is not None:
            waited = time.monotonic() - self._drain_since
            late = waited > self._options.drain_seconds + _GRACE_S
            wanted = signal.SIGKILL if late else signal.SIGTERM
            # Once: a host that gets a second SIGTERM does not wait for its requests.
            if self._sent != wanted:
                self._sent = wanted
                child.send_signal(wanted)
            return
        if self.state == "ready" and not self._was_ready:
            self._was_ready, self.note = True, "; ".join(filter(None, (self._lease.note, _low_priority(child.pid))))
            self._remember_ports()
        silent, stopped = self._files.liveness.silence(HOST, child.pid)
        limit = self._options.hang_seconds
        if limit and not self._killed and max(silent, stopped) >= limit:
            self._killed = f"no sign of life for {max(silent, stopped):.0f} s"
            with contextlib.suppress(OSError):
                # The version that it was loading is not to blame.
                (self._folder / KILLED).touch()
            child.kill()

    def _may_start(self) -> bool:
        """Return whether there is a state to follow, and the host of an earlier actor has ended.

        That one has been told to end; it is killed if it does not.
        """
        seen = self.seen
        if seen is None or not is_alive(self._folder / "lock", seen.pid):
            self._other_since = None
            # Without this file a host would be ready at once.
            return (self._state_dir / "desired.json").exists()
        now = time.monotonic()
        if self._other_since is None:
            self._other_since, self.note = now, f"waits for process {seen.pid}, the host of an earlier actor"
        waited = now - self._other_since
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if waited > self._options.drain_seconds + _GRACE_S:
                os.kill(seen.pid, signal.SIGKILL)
        return False

    def _start(self) -> None:
        try:
            self._lease.take()
            command = host_command(self._with_ports(), self._state_dir, HOST)
            output = open_log(self._folder)
            try:
                self._child = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_BOUND), str(os.getpid()), *_found(command)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=_environment(os.environ),
                    pass_fds=self._lease.files,
                    start_new_session=True,
                )
            finally:
                os.close(output)
        except (OSError, ProxyError) as error:
            self._schedule(f"cannot be started, {error}")
            return
        self._started = time.monotonic()
        self.note = self._lease.note

    def _handle_exit(self, code: int) -> None:
        self._child = None
        self._cpu_before_s, self._cpu_now_s = self.cpu_s, 0.0
        if self.drains:
            self.note = "drained"
            return
        said = self._killed or last_line(self._folder)
        how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        if not self._was_ready:
            # Perhaps another program has its ports now.
            self._ports.unlink(missing_ok=True)
        self.restarts += 1
        self._killed = ""
        self._schedule(how + (f", '{said}'" if said else ""))

    def _schedule(self, said: str) -> None:
        ran = time.monotonic() - self._started if self._started else 0.0
        self._failures = failures_after(self._failures, ran, self._was_ready)
        self._started, self._was_ready = 0.0, False
        wait = delay(self._failures)
        self._start_at = time.monotonic() + wait
        self.note = f"host: {said}; restarted in {wait:g} s"
        log.warning("%s", self.note)

    def _with_ports(self) -> LaunchOptions:
        """Return the options with the CPUs, and with the ports that it had before instead of any free ones."""
        options = replace(self._options, cpus=self._lease.text or None)
        with contextlib.suppress(ProxyError, ValueError, KeyError, TypeError):
            found = json.loads(read_regular(self._ports, 4096))
            options = replace(
                options,
                grpc_port=options.grpc_port or int(found["grpc"]),
                rest_port=options.rest_port or int(found["rest"]),
            )
        return options

    def _remember_ports(self) -> None:
        """Keep the ports: clients have a list of addresses."""
        endpoints = {} if self.seen is None else self.seen.endpoints
        with contextlib.suppress(ProxyError, ValueError, KeyError):
            ports = {name: int(endpoints[name].rpartition(":")[2]) for name in ("grpc", "rest")}
            replace_file(self._ports, json.dumps(ports).encode())


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process [s]; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _low_priority(pid: int) -> str:
    """Return a note if a host has a lower priority than usual."""
    with contextlib.suppress(OSError):
        nice = os.getpriority(os.PRIO_PROCESS, pid)
        if nice > 0:
            return f"its host runs at nice {nice}, expected RAY_worker_niceness=0 in the environment of `ray start`"
    return ""


def _environment(found: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a host: Ray sets the number of OpenMP threads for Python code of actors."""
    return {name: value for name, value in found.items() if name != "OMP_NUM_THREADS"}


def _found(command: list[str]) -> list[str]:
    """Return a command with the path of its program."""
    return [shutil.which(command[0]) or command[0], *command[1:]]

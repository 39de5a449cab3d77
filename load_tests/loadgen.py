# SPDX-License-Identifier: Apache-2.0
"""Run the native load generator, `loadgen` (libprocessor/go/cmd/loadgen), against hosts.

All measurements of hosts use it, except load scenarios up to 500 requests/s, which locust sends.

In a closed loop, each client sends its next request after the previous response. In an open loop, requests are sent at
a fixed rate, regardless of response times, and latency counts from the due time.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from load_tests._programs import ProgramError, find_go_program, run_program
from load_tests.latencies import Latencies

__all__ = ["Loop", "open_loop", "placement", "process_cpu_s", "report_of", "run_loadgen", "start_loadgen"]

#: More connections than requests in flight, so that no request waits for another.
CONNECTIONS = 32
_BEGIN_S = 0.3
_TICKS = os.sysconf("SC_CLK_TCK")


def run_loadgen(address: str, requests: Path, **options: object) -> dict[str, Any]:
    """Send requests until the end of the measurement, and return the report; failed requests raise no error.

    Parameters
    ----------
    address : str
        host:port.
    requests : Path
        File of requests.
    **options
        Further options of the program by name, such as `clients=4` or `time="10s"`.

    Raises
    ------
    ProgramError
        If the generator failed, not only a request.
    """
    report: dict[str, Any] = run_program(
        find_go_program("loadgen"), {"address": address, "requests": requests, **options}
    )
    return report


def start_loadgen(address: str, requests: Path, cpu: int | None = None, **options: object) -> subprocess.Popen[str]:
    """Start to send requests; see `run_loadgen`. With `cpu`, the generator has the highest priority on that CPU."""
    command = [str(find_go_program("loadgen")), "--address", address, "--requests", str(requests)]
    for name, value in options.items():
        command += [f"--{name}", str(value)]

    def preexec() -> None:
        if cpu is not None:
            _take_cpu(cpu)

    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=preexec)


def report_of(process: subprocess.Popen[str], timeout: float) -> dict[str, Any]:
    """Wait until a generator has ended, and return its report.

    Raises
    ------
    ProgramError
        If the generator failed, not only a request.
    """
    try:
        output, errors = process.communicate(timeout=timeout)
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode:
        raise ProgramError("loadgen", process.returncode, errors)
    report: dict[str, Any] = json.loads(output)
    return report


@dataclass
class Loop:
    """Contain the results of an open loop; complete after it has ended.

    Attributes
    ----------
    latencies : Latencies
        From the due time of each request.
    failed : dict
        Failed requests by status.
    late_us : float
        p99 of how late requests were sent.
    cpu_s : float
        CPU time that it used during `seconds`.
    """

    seconds: float = 0.0
    requests: int = 0
    latencies: Latencies = field(default_factory=lambda: Latencies(np.empty(0), np.empty(0)))
    failed: dict[str, int] = field(default_factory=dict)
    late_us: float = 0.0
    cpu_s: float = 0.0


def placement(cpu: int) -> str:
    """Describe how generators are placed on a CPU."""
    child = os.fork()
    if child == 0:
        os._exit(0 if _take_cpu(cpu) else 1)
    _, status = os.waitpid(child, 0)
    how = "real-time priority" if os.waitstatus_to_exitcode(status) == 0 else "the usual priority (no permission)"
    return f"CPU {cpu}, with {how}"


def _take_cpu(cpu: int) -> bool:
    """Give the calling process priority on one CPU."""
    os.sched_setaffinity(0, {cpu})
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        return False
    return True


@contextlib.contextmanager
def open_loop(address: str, requests: Path, rate: float, cpu: int | None = None, seed: int = 1) -> Iterator[Loop]:
    """Send at a fixed rate until the block ends.

    Parameters
    ----------
    cpu : int, optional
        CPU of the generator, on which it has the highest priority: it disturbs hosts as little as clients on other
        machines would. By default it runs like any other program.

    Raises
    ------
    ProgramError
        If the generator failed, not only a request.
    """
    loop = Loop()
    with tempfile.NamedTemporaryFile(suffix=".samples") as samples:
        process = start_loadgen(
            address,
            requests,
            cpu=cpu,
            clients=CONNECTIONS,
            time="3h",
            warmup="100ms",
            timeout="10s",
            rate=rate,
            seed=seed,
            samples=samples.name,
        )
        try:
            time.sleep(_BEGIN_S)
            yield loop
            loop.cpu_s = process_cpu_s(process.pid)
        except BaseException:
            process.kill()
            process.wait()
            raise
        process.send_signal(signal.SIGINT)
        report = report_of(process, 120)
        loop.latencies = Latencies.read(Path(samples.name), report["started"])
    loop.seconds, loop.requests = report["seconds"], report["requests"]
    loop.failed, loop.late_us = report["failed"], report["late_us"]["p99"]


def process_cpu_s(pid: int) -> float:
    """Return the CPU time that all threads of a process have used [s]."""
    words = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / _TICKS

# SPDX-License-Identifier: Apache-2.0
"""`small_hosts`: what two hosts of one core compute in a second of CPU time, over what one host of two cores does.

Hosts serve the optimized W2 over gRPC, one row a request, and run in turn within one run. Only the CPU time of hosts
counts, since the load generators share the CPUs.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from load_tests._programs import ProgramError, find_library
from load_tests._report import Target
from load_tests.bench_fused import fuse
from load_tests.bench_serving import default_config
from load_tests.fleet.setup import Setup
from load_tests.hosts.throughput import PATHS, HostProcess
from load_tests.live.latency import interval_of
from load_tests.loadgen import process_cpu_s, report_of, start_loadgen
from load_tests.request_files import ensure_requests
from load_tests.workloads import CACHE

__all__ = ["judge", "measure"]

_CLIENTS = 8
_LEAST = 0.95
#: How often all hosts are started, and rounds of each start: a process keeps what its start gave it.
_STARTS = 4
_ROUNDS = 15
_END_S = 60.0


def measure(setup: Setup) -> dict[str, Any]:
    """Send the same requests to one host of two cores, and to two hosts of one core, in turn."""
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        return {"skipped": "needs two CPUs"}
    model = fuse("W2", "fp32", CACHE, find_library(None))
    requests = ensure_requests(CACHE / "requests", "W2", 1, "tfserving")
    rounds: list[tuple[dict[str, float], dict[str, float]]] = []
    for _ in range(1 if setup.quick else _STARTS):
        with ExitStack() as stack:

            def host(config: dict[str, Any], on: str, stack: ExitStack = stack) -> HostProcess:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                made = HostProcess("go", model, folder, config, ["--cpus", on])
                stack.callback(made.close)
                return made

            one = [host(default_config(2), ",".join(map(str, cpus)))]
            two = [host(default_config(1), str(cpu)) for cpu in cpus]
            # Short rounds in alternating order, so that other programs disturb both sides alike: on the CPUs of a
            # virtual machine, the ratio of a round may be anything between 0.7 and 1.3.
            seconds = setup.seconds / 4
            for hosts in (one, two):
                _send(hosts, cpus, requests, seconds)
            for turn in range(1 if setup.quick else _ROUNDS):
                sides = [_send(hosts, cpus, requests, seconds) for hosts in ((one, two) if turn % 2 else (two, one))]
                rounds.append((sides[0], sides[1]) if turn % 2 else (sides[1], sides[0]))
    ratios = sorted(one["cpu_us"] / two["cpu_us"] for one, two in rounds)
    medians = {
        name: {key: median(turn[side][key] for turn in rounds) for key in ("rate", "cpu_us")}
        for side, name in enumerate(("one_of_two", "two_of_one"))
    }
    return {
        **medians,
        "rounds": len(rounds),
        "ratio": median(ratios),
        "interval": [round(value, 4) for value in interval_of(ratios)],
        "ratios": [ratios[0], ratios[-1]],
    }


def judge(case: dict[str, Any]) -> list[Target]:
    """Return the targets."""
    if "skipped" in case:
        return []
    name = "requests a second of CPU time, two hosts of one core over one of two"
    return [Target(name, case["ratio"], _LEAST, at_least=True)]


def _send(hosts: list[HostProcess], cpus: Sequence[int], requests: Path, seconds: float) -> dict[str, float]:
    """Send requests to all hosts at once, and return the rate [1/s] and the CPU time of a request [us].

    Each CPU has one load generator, whose host is the one there, or the only one. Otherwise the kernel might give the
    only host one CPU and its load generator the other one, which two hosts of one core cannot have.
    """
    before = sum(process_cpu_s(host.pid) for host in hosts)
    options: dict[str, Any] = {"over": "grpc", "path": PATHS["grpc"], "warmup": "0s", "time": f"{seconds}s"}
    running: list[subprocess.Popen[str]] = []
    allowed = os.sched_getaffinity(0)
    try:
        for i, cpu in enumerate(cpus):
            os.sched_setaffinity(0, {cpu})  # the generator inherits it
            address = hosts[i % len(hosts)].addresses["grpc"]
            running.append(start_loadgen(address, requests, clients=_CLIENTS // len(cpus), **options))
    finally:
        os.sched_setaffinity(0, allowed)
    reports = [report_of(process, seconds + _END_S) for process in running]
    used = sum(process_cpu_s(host.pid) for host in hosts) - before
    done = sum(report["requests"] for report in reports)
    if not done or any(report["failed"] for report in reports):
        raise ProgramError("loadgen", 0, f"failed requests: {[report['failed'] for report in reports]}")
    return {"rate": done / seconds, "cpu_us": 1e6 * used / done}

# SPDX-License-Identifier: Apache-2.0
"""Send the phases of a scenario: with locust's greenlets up to 500 requests/s, above with the native generator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from load_tests._programs import ROOT, ProgramError
from load_tests.latencies import Latencies
from load_tests.loadgen import report_of, run_loadgen, start_loadgen
from load_tests.scenarios.arrivals import LOCUST_MOST, Phase, arrivals, offsets

__all__ = ["NATIVE_CLIENTS", "Endpoint", "Sent", "flood", "send_phases", "uses_locust"]

_LOCUST_FILE = Path(__file__).with_name("locust_open_loop.py")
_START_S = 60.0
#: Largest number of requests in flight of the native generator.
NATIVE_CLIENTS = 128
TIMEOUT_S = 10.0
_LOADGEN: dict[str, Any] = {"warmup": "0s", "timeout": f"{TIMEOUT_S:g}s"}

#: Called while a phase lasts, with the Unix time of its end.
During = Callable[[Phase, float], None]


@dataclass(frozen=True)
class Endpoint:
    """Describe a host, and files of the same requests in both protocols.

    Attributes
    ----------
    rest, grpc : str
        host:port.
    path : str
        Path of REST requests.
    json_requests, grpc_requests : Path
        Files in the format of `request_files`.
    """

    rest: str
    grpc: str
    path: str
    json_requests: Path
    grpc_requests: Path


@dataclass
class Sent:
    """Contain the results of the generator.

    Attributes
    ----------
    spans : list
        Begin and end of each phase as Unix times.
    sent : list of int
        Requests of each phase, completed or not.
    failed : list of dict
        For each phase, failed requests by status.
    late_us : float
        p99 of how late requests were sent.
    """

    generator: str
    latencies: Latencies
    spans: list[tuple[float, float]] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    failed: list[dict[str, int]] = field(default_factory=list)
    late_us: float = 0.0


def uses_locust(phases: Sequence[Phase]) -> bool:
    """Return whether greenlets can send every phase on time."""
    return all(phase.rate <= LOCUST_MOST for phase in phases)


def send_phases(
    endpoint: Endpoint, phases: Sequence[Phase], seed: int, folder: Path, html: Path, during: During
) -> Sent:
    """Send all phases, one after the other; `during` is called at the begin of each.

    Raises
    ------
    ProgramError
        If the generator failed, not only a request.
    """
    if uses_locust(phases):
        return _with_locust(endpoint, phases, seed, folder, html, during)
    return _natively(endpoint, phases, seed, folder, during)


def _with_locust(
    endpoint: Endpoint, phases: Sequence[Phase], seed: int, folder: Path, html: Path, during: During
) -> Sent:
    moments = arrivals(phases, seed)
    plan = {"moments": moments.tolist(), "requests": str(endpoint.json_requests), "path": endpoint.path}
    plan |= {"folder": str(folder), "timeout_s": TIMEOUT_S}
    (folder / "plan.json").write_text(json.dumps(plan))
    html.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "locust", "-f", str(_LOCUST_FILE), "--headless", "--users", "1"]
    command += ["--spawn-rate", "1", "--host", f"http://{endpoint.rest}", "--html", str(html), "--only-summary"]
    environment = {
        **os.environ,
        "LOAD_TEST_PLAN": str(folder / "plan.json"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    log = folder / "locust.log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, cwd=folder, env=environment)
    try:
        started = _started(process, folder / "started.json", log)
        spans = [(started + begin, started + end) for _, begin, end in offsets(phases)]
        for phase, (begin, end) in zip(phases, spans, strict=True):
            time.sleep(max(0.0, begin - time.time()))
            during(phase, end)
        status = process.wait(max(0.0, spans[-1][1] - time.time()) + 2 * TIMEOUT_S + 30)
    except BaseException:
        process.kill()
        process.wait()
        raise
    if status or not (folder / "report.json").is_file():
        raise ProgramError("locust", status, log.read_text())
    report = json.loads((folder / "report.json").read_text())
    edges = [begin for _, begin, _ in offsets(phases)]
    sent = Sent("locust", Latencies.read(folder / "samples", started), spans)
    sent.late_us = report["late_us"].get("p99", 0.0)
    sent.sent = [int(np.sum((moments >= begin) & (moments < end))) for _, begin, end in offsets(phases)]
    sent.failed = [{} for _ in phases]
    for at, kind in report["failed"]:
        counts = sent.failed[max(0, int(np.searchsorted(edges, at, "right")) - 1)]
        counts[kind] = counts.get(kind, 0) + 1
    return sent


def _started(process: subprocess.Popen[bytes], path: Path, log: Path) -> float:
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        if path.is_file():
            return float(json.loads(path.read_text()))
        time.sleep(0.02)
    raise ProgramError("locust", process.poll() or 0, log.read_text())


def _natively(endpoint: Endpoint, phases: Sequence[Phase], seed: int, folder: Path, during: During) -> Sent:
    parts, sent = [], Sent("loadgen", Latencies(np.empty(0), np.empty(0)))
    for number, phase in enumerate(phases):
        samples = folder / f"samples-{number}"
        process = start_loadgen(
            endpoint.grpc,
            endpoint.grpc_requests,
            **_LOADGEN,
            clients=NATIVE_CLIENTS,
            rate=phase.rate,
            seed=seed + number,
            time=f"{phase.seconds:g}s",
            samples=samples,
        )
        try:
            during(phase, time.time() + phase.seconds)
        except BaseException:
            process.kill()
            process.wait()
            raise
        report = report_of(process, phase.seconds + 3 * TIMEOUT_S)
        parts.append(Latencies.read(samples, report["started"]))
        sent.spans.append((report["started"], report["started"] + report["seconds"]))
        sent.failed.append(report["failed"])
        sent.sent.append(report["requests"] + sum(report["failed"].values()))
        sent.late_us = max(sent.late_us, report["late_us"]["p99"])
    sent.latencies = Latencies.concatenated(parts)
    return sent


def flood(endpoint: Endpoint, requests: Path, clients: int, seconds: float) -> dict[str, Any]:
    """Send as fast as responses arrive, over `clients` connections; failed requests are counted and raise no error."""
    return run_loadgen(endpoint.grpc, requests, **_LOADGEN, clients=clients, time=f"{seconds:g}s")

# SPDX-License-Identifier: Apache-2.0
"""Measure requests/s and latency of hosts over gRPC and REST, and of the bare model for comparison."""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.table import Table

from load_tests._environment import usable_cpus
from load_tests._programs import ROOT, ProgramError, find_go_program, find_library, find_program, run_program
from load_tests._report import Target
from load_tests.bench_serving import default_config
from load_tests.loadgen import run_loadgen
from load_tests.request_files import ensure_requests, random_inputs
from load_tests.workloads import WORKLOADS

__all__ = ["CLIENTS", "HostProcess", "bare_model", "judge", "measure", "send", "table", "write_json_requests"]

MODEL = "ranking"
#: Requests for the bare model, over gRPC and over REST: the same numbers in different protocols.
PATHS = {"grpc": "/tensorflow.serving.PredictionService/Predict", "rest": f"/v1/models/{MODEL}:predict"}
CLIENTS = {"python": (1, 8), "go": (1, 16)}
#: Per host: least requests/s over gRPC with the most clients, and largest p50 [µs] with one client.
TARGETS = {"python": (2500.0, 1000.0), "go": (10_000.0, 400.0)}
#: Least rate of REST as a share of gRPC's rate, and largest p50 as a multiple.
REST = 0.5
_START_S = 120.0


class HostProcess:
    """Run a host that serves one model.

    Attributes
    ----------
    addresses : dict of str to str
        By transport, for example "127.0.0.1:8500".
    pid : int
    """

    def __init__(
        self, kind: str, model: Path, folder: Path, config: dict[str, Any], options: Sequence[str] = ()
    ) -> None:
        state = {"path": str(model.resolve()), "config": config}
        desired = {"schema": 1, "generation": 1, "models": {MODEL: {"baseline": 1, "versions": {"1": state}}}}
        (folder / "desired.json").write_text(json.dumps(desired))
        program = [sys.executable, "-m", "serving_proxy.host"]
        if kind == "go":
            program = [str(find_go_program("recprocessor-host"))]
        self._actual = folder / "hosts" / kind / "actual.json"
        self._log = folder / "log"
        ports = ["--grpc-port", "0", "--rest-port", "0"]
        with self._log.open("wb") as log:
            command = [*program, "--state-dir", str(folder), "--host-id", kind, *ports, *options]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)
        self.pid = self._process.pid
        try:
            self.addresses = self._wait()
        except BaseException:
            self._process.kill()
            raise

    def _wait(self) -> dict[str, str]:
        until = time.monotonic() + _START_S
        while time.monotonic() < until and self._process.poll() is None:
            with contextlib.suppress(FileNotFoundError):
                actual = json.loads(self._actual.read_bytes())
                if actual["state"] == "ready" and len(actual["endpoints"]) == 2:
                    (version,) = actual["models"][MODEL]["versions"].values()
                    if version["state"] != "ready":
                        raise ProgramError("host", 1, str(version["error"]))
                    return dict(actual["endpoints"])
            time.sleep(0.005)
        raise ProgramError("host", self._process.poll() or 0, self._log.read_text())

    def close(self) -> None:
        """Stop it."""
        self._process.terminate()
        self._process.wait(60)


@contextlib.contextmanager
def _serving(kind: str, model: Path, config: dict[str, Any]) -> Iterator[HostProcess]:
    with tempfile.TemporaryDirectory() as folder:
        host = HostProcess(kind, model, Path(folder), config)
        try:
            yield host
        finally:
            host.close()


def write_json_requests(path: Path, workload: str, count: int) -> Path:
    """Write a file of one-row requests for TensorFlow Serving's REST API, each after its length in 4 bytes."""
    rng = np.random.default_rng(1)
    with path.open("wb") as file:
        for _ in range(count):
            inputs = {name: _plain(value) for name, value in random_inputs(workload, 1, rng).items()}
            body = json.dumps({"inputs": inputs}).encode()
            file.write(len(body).to_bytes(4, "little") + body)
    return path


def _plain(value: Any) -> Any:
    if value.dtype.kind in "OS":
        return [item.decode() for item in value.ravel().tolist()]
    return value.round(6).tolist()


def send(address: str, over: str, requests: Path, clients: int, seconds: float) -> dict[str, Any]:
    """Let the load generator send requests; return its report.

    Raises
    ------
    ProgramError
        If it fails, or a request does.
    """
    warmup = f"{min(1.0, seconds)}s"
    report = run_loadgen(
        address, requests, over=over, path=PATHS[over], clients=clients, time=f"{seconds}s", warmup=warmup
    )
    if report["failed"] or not report["requests"]:
        raise ProgramError("loadgen", 0, f"failed requests: {report['failed']}")
    return report


def bare_model(model: Path, threads: int, options: argparse.Namespace) -> dict[str, float]:
    """Measure only the model, with callers in the same process."""
    config = default_config(usable_cpus())
    engine = {"name": "bare", "engine": "processor", "model": str(model.resolve()), "config": config}
    output = run_program(
        find_program("bench_serving", options.bench_dir),
        {
            "requests": ensure_requests(options.cache / "requests", "W2", 1, "tfserving"),
            "protocol": "tfserving",
            "library": find_library(options.library),
            "contestants": json.dumps([engine]),
            "threads": threads,
            "seconds": options.seconds,
            "rounds": options.rounds,
            "weights": WORKLOADS["W2"].weights,
        },
    )
    rounds = output["engines"][0]["rounds"]
    return {name: median(turn[name] for turn in rounds) for name in ("requests_per_s", "p50_us", "p99_us")}


def measure(kind: str, model: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure one kind of host over both transports, with one client and with many."""
    cases = []
    requests = {"grpc": ensure_requests(options.cache / "requests", "W2", 1, "tfserving")}
    with tempfile.TemporaryDirectory() as folder, _serving(kind, model, default_config(usable_cpus())) as host:
        requests["rest"] = write_json_requests(Path(folder) / "requests", "W2", 256)
        for over in ("grpc", "rest"):
            for clients in CLIENTS[kind]:
                reports = [
                    send(host.addresses[over], over, requests[over], clients, options.seconds)
                    for _ in range(options.rounds)
                ]
                cases.append(
                    {
                        "host": kind,
                        "over": over,
                        "clients": clients,
                        "requests_per_s": median(report["rate"] for report in reports),
                        "p50_us": median(report["latency_us"]["p50"] for report in reports),
                        "p99_us": median(report["latency_us"]["p99"] for report in reports),
                        "rounds": reports,
                    }
                )
    return cases


def judge(cases: Sequence[dict[str, Any]]) -> list[Target]:
    """Compare the cases with the targets: rate at many clients and p50 at one, of gRPC, and of REST relative to it."""
    found = {(case["host"], case["over"], case["clients"] == 1): case for case in cases}
    targets = []
    for kind, (rate, p50) in TARGETS.items():
        if (kind, "grpc", False) not in found:
            continue
        many = found[kind, "grpc", False]
        name = f"{kind} host, {many['clients']} clients"
        targets.append(Target(f"{name}, gRPC, requests/s", many["requests_per_s"], rate, at_least=True))
        rest = found[kind, "rest", False]["requests_per_s"]
        targets.append(Target(f"{name}, REST, requests/s", rest, REST * rate, at_least=True))
        alone = found[kind, "grpc", True]["p50_us"]
        targets.append(Target(f"{kind} host, 1 client, gRPC, p50 µs", alone, p50, at_least=False))
        rest = found[kind, "rest", True]["p50_us"]
        targets.append(Target(f"{kind} host, 1 client, REST, p50 µs", rest, p50 / REST, at_least=False))
    return targets


def table(cases: Sequence[dict[str, Any]]) -> Table:
    """Return a table of the cases."""
    found = Table(title="W2 optimized, one row, hosts and load generator on the same CPUs")
    for heading in ("host", "over", "clients"):
        found.add_column(heading)
    for heading in ("requests/s", "p50 ms", "p99 ms"):
        found.add_column(heading, justify="right")
    for case in cases:
        figures = (f"{case['requests_per_s']:,.0f}", f"{case['p50_us'] / 1000:.3f}", f"{case['p99_us'] / 1000:.3f}")
        found.add_row(case["host"], case["over"], str(case["clients"]), *figures)
    return found

# SPDX-License-Identifier: Apache-2.0
"""Start, ports that are shared, a new desired state under load, SIGTERM and SIGKILL."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from pathlib import Path

import grpc
import httpx
import pytest

from helpers.hosts.host_requests import HeldRequest, SentRequest, in_flight, quick_request, ranking_body
from helpers.hosts.served_hosts import ROOT, ServedHost, program, served
from helpers.models.slow_requests import ENDLESS, slow_request
from helpers.system.waiting import wait_until


class Load:
    """Sends requests one after the other on a thread until it is stopped."""

    def __init__(self, host: ServedHost) -> None:
        self.statuses: list[int] = []
        self.versions: list[str] = []
        self._stop = threading.Event()
        self._url = f"http://{host.rest}/api/predict/ranking"
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with httpx.Client(timeout=60) as client:
            while not self._stop.is_set():
                answer = client.post(self._url, content=ranking_body())
                self.statuses.append(answer.status_code)
                self.versions.append(answer.headers.get("x-model-version", ""))

    def end(self) -> None:
        self._stop.set()
        self._thread.join(60)


def test_new_desired_state_loses_no_request(start_host, served_models) -> None:
    ranking = served_models["ranking"]
    with start_host({"ranking": ranking}) as host:
        load = Load(host)
        for baseline in (2, 1, 2):
            seen = len(load.versions)
            host.desire({"ranking": {**ranking, "baseline": baseline}})
            wait_until(lambda seen=seen, baseline=baseline: str(baseline) in load.versions[seen:])
        load.end()
    assert set(load.statuses) == {200}
    assert set(load.versions) == {"1", "2"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_requests_in_flight_are_answered_after_a_signal(
    start_host, served_models, tmp_path: Path, number: signal.Signals
) -> None:
    with start_host({"held": served_models["held"]}) as host, HeldRequest(host, tmp_path) as running:
        waiting = SentRequest(host, "held", quick_request())
        wait_until(lambda: in_flight(host, "held") == 2)
        host.process.send_signal(number)
        wait_until(lambda: not _is_ready(host))
        assert [answer.status_code for answer in (running.release(), waiting.end())] == [200, 200]
        assert host.process.wait(60) == 0
    assert host.actual()["endpoints"] == {}


def _is_ready(host: ServedHost) -> bool:
    try:
        return httpx.get(f"http://{host.rest}/readyz", timeout=60).status_code == 200
    except httpx.TransportError:
        return False


def test_drain_ends_at_its_limit(start_host, served_models) -> None:
    with start_host({"slow": served_models["slow"]}, ("--drain-seconds", "1")) as host:
        running = SentRequest(host, "slow", slow_request(ENDLESS))
        wait_until(lambda: in_flight(host) == 1)
        assert host.end(signal.SIGTERM) == 0
        answer = running.end_if_any()
        assert answer is None or not answer.is_success


def test_open_streams_are_not_waited_for(start_host, served_models) -> None:
    with start_host({"ranking": served_models["ranking"]}) as host, grpc.insecure_channel(host.grpc) as channel:
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=60)
        assert next(watch)
        with httpx.Client(timeout=60) as idle:
            idle.get(f"http://{host.rest}/healthz")
            began = time.monotonic()
            assert host.end(signal.SIGTERM) == 0
    # Requests would be waited for as long as --drain-seconds says, 30 s.
    assert time.monotonic() - began < 25


def test_host_serves_again_after_sigkill(start_host, served_models) -> None:
    with start_host({"ranking": served_models["ranking"]}) as host:
        before = httpx.post(f"http://{host.rest}/api/predict/ranking", content=ranking_body(), timeout=60)
        host.end(signal.SIGKILL)
        host.start()
        after = httpx.post(f"http://{host.rest}/api/predict/ranking", content=ranking_body(), timeout=60)
    assert (before.status_code, before.content) == (after.status_code, after.content)


def test_hosts_share_ports(start_host, served_models, host_kind: str) -> None:
    with start_host({"ranking": served_models["ranking"]}) as first:
        ports = (part for name in ("grpc", "rest") for part in (f"--{name}-port", getattr(first, name).split(":")[1]))
        models = {"ranking": served_models["ranking"]}
        with served(host_kind, first.state_dir, models, tuple(ports), name="host-1") as second:
            assert (second.grpc, second.rest) == (first.grpc, first.rest)
            assert first.end() == 0
            answer = httpx.post(f"http://{second.rest}/api/predict/ranking", content=ranking_body(), timeout=60)
            assert answer.status_code == 200


def test_second_host_with_the_same_id_is_refused(start_host, served_models, host_kind: str) -> None:
    with start_host({"ranking": served_models["ranking"]}) as first:
        command = [*program(host_kind), "--state-dir", str(first.state_dir), "--host-id", first.name]
        command += ["--grpc-port", "0", "--rest-port", "0"]
        second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert second.returncode == 1
    assert first.name in second.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--grpc-port", "70000"),
        ("--tls-cert", "a.crt"),
        ("--client-ca", "a.crt"),
        ("--allow-reload-rpc",),
        ("--allow-model-control",),
        ("--cors-origin", "shop.example"),
        ("--cors-origin", "https://shop.example/path"),
        ("--grpc-keepalive-seconds", "0.5"),
        ("--grpc-min-ping-seconds", "-1"),
        ("--max-message-mb", "0"),
        ("--nothing",),
    ],
)
def test_wrong_command_lines_are_refused(host_kind: str, tmp_path, arguments: tuple[str, ...]) -> None:
    command = [*program(host_kind), "--state-dir", str(tmp_path), *arguments]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, timeout=120).returncode == 2

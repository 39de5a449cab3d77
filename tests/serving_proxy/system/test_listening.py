# SPDX-License-Identifier: Apache-2.0
"""Clients that open idle connections until a process has no free descriptors."""

from __future__ import annotations

import logging
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from helpers.hosts.served_hosts import ServedHost
from helpers.proxies.proxy_runs import ProxyProcess, ProxyThread, write_model
from serving_proxy.api import connection_limits
from serving_proxy.system import logs


@contextmanager
def idle(address: str, number: int) -> Iterator[list[socket.socket]]:
    """Open idle connections; refused ones are left out."""
    host, _, port = address.rpartition(":")
    with ExitStack() as stack:
        made = []
        for _ in range(number):
            connection = stack.enter_context(socket.socket())
            connection.settimeout(60)
            if connection.connect_ex((host, int(port))) == 0:
                made.append(connection)
        yield made


def test_idle_connections_do_not_block_the_admin_port(proxy: ProxyThread, monkeypatch: pytest.MonkeyPatch) -> None:
    # None of them is closed because it has asked for nothing for long, however busy the machine is.
    monkeypatch.setattr(connection_limits, "HEAD_S", 600.0)
    address = httpx.URL(proxy.url).netloc.decode()
    with httpx.Client(base_url=proxy.url, headers=proxy.headers(), trust_env=False, timeout=60) as kept:
        assert kept.get("/v1/status").status_code == 200
        with idle(address, 700) as made:
            for _ in range(5):
                assert (
                    httpx.get(
                        proxy.url + "/v1/status", headers=proxy.headers(), trust_env=False, timeout=60
                    ).status_code
                    == 200
                )
                with proxy.client() as client:
                    client.status()
            # The oldest have made room, and no more of them than was needed.
            made[0].settimeout(60)
            assert made[0].recv(1) == b""
            made[-1].settimeout(0.1)
            with pytest.raises(TimeoutError):
                made[-1].recv(1)


def test_a_proxy_without_free_descriptors_keeps_running(tmp_path: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with ProxyProcess(tmp_path) as proxy, proxy.client() as client:
        client.deploy("ranking", write_model(tmp_path / "3"), wait=True)
        # Fewer than its connections may be: it was told of more when it started.
        used = len(list(Path(f"/proc/{proxy.process.pid}/fd").iterdir()))
        resource.prlimit(proxy.process.pid, resource.RLIMIT_NOFILE, (used + 8, hard))
        with idle(httpx.URL(proxy.url).netloc.decode(), 200):
            before = proxy.log_path.stat().st_size
            time.sleep(4)
            assert (proxy.log_path.stat().st_size - before) / 4 < 20_000
        resource.prlimit(proxy.process.pid, resource.RLIMIT_NOFILE, (hard, hard))
        time.sleep(1.5)
        assert client.status()["models"][0]["name"] == "ranking"


def test_a_proxy_with_few_descriptors_keeps_some_for_itself(tmp_path: Path) -> None:
    proxy = ProxyProcess(tmp_path)
    with ExitStack() as stack:
        proxy.spawn()
        resource.prlimit(proxy.process.pid, resource.RLIMIT_NOFILE, (200, 200))
        stack.push(proxy.__exit__)
        proxy.start_waiting()
        with idle(httpx.URL(proxy.url).netloc.decode(), 400), proxy.client() as client:
            client.deploy("ranking", write_model(tmp_path / "3"), wait=True)
            client.traffic("ranking", {})
            assert client.status()["fault"] is None


def test_a_host_without_free_descriptors_keeps_running(tmp_path: Path) -> None:
    host = ServedHost("python", tmp_path, {})
    host.start()
    try:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        used = len(list(Path(f"/proc/{host.pid}/fd").iterdir()))
        resource.prlimit(host.pid, resource.RLIMIT_NOFILE, (used + 8, hard))
        with idle(host.rest, 300), idle(host.grpc, 300):
            before = host.log.stat().st_size
            time.sleep(4)
            assert (host.log.stat().st_size - before) / 4 < 20_000
        resource.prlimit(host.pid, resource.RLIMIT_NOFILE, (hard, hard))
        time.sleep(1.5)
        assert httpx.get(f"http://{host.rest}/healthz", timeout=30).status_code == 200
    finally:
        host.end()


def test_a_flood_of_one_message_is_cut_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(logs, "time", SimpleNamespace(monotonic=lambda: now))
    moderation = logs.Moderation(most=3, period_s=0.2)

    def record(line: int = 1, level: int = logging.ERROR) -> logging.LogRecord:
        return logging.LogRecord("a", level, "x", line, "message", None, None)

    assert [moderation.filter(record()) for _ in range(5)] == [True, True, True, False, False]
    assert moderation.filter(record(2))
    assert all(moderation.filter(record(level=logging.INFO)) for _ in range(20))
    now += 0.25
    later = record()
    assert moderation.filter(later)
    assert vars(later)["left_out"] == 2

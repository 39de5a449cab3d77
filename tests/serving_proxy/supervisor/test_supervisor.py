# SPDX-License-Identifier: Apache-2.0
"""Real processes: hosts that end, hosts of others, and what is left when the proxy is killed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from proxy_support import Proxy, ProxyProcess, ProxyThread, host_program, wait_for, write_model

from serving_proxy.errors import NotFoundError, PreconditionError


def host(proxy: Proxy, name: str = "host-0") -> dict[str, Any]:
    with proxy.client() as client:
        return next((one for one in client.status()["hosts"] if one["name"] == name), {})


def messages(proxy: Proxy) -> list[str]:
    with proxy.client() as client:
        return [one["message"] for one in client.events(limit=1000) if one["kind"] in {"host", "drain"}]


def alive(proxy: Proxy, name: str = "host-0") -> int:
    found = wait_for(lambda: host(proxy, name).get("alive") and host(proxy, name))
    return int(found["pid"])


@contextmanager
def by_hand(proxy: Proxy, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A host that somebody starts in the same state directory."""
    command = [str(host_program(proxy.folder)), "--state-dir", str(proxy.state_dir), "--host-id", name]
    started = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: (proxy.state_dir / "hosts" / name / "actual.json").exists())
        yield started
    finally:
        started.kill()
        started.wait()


def test_a_host_that_is_killed_is_started_again(tmp_path: Path) -> None:
    with ProxyThread(tmp_path) as proxy:
        first = alive(proxy)
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: host(proxy)["alive"] and host(proxy)["pid"] != first)
        assert host(proxy)["restarts"] == 1
        assert "host-0: ended by SIGKILL; started again in 0.5 s" in messages(proxy)


def test_a_host_that_cannot_run_is_tried_less_and_less_often(tmp_path: Path) -> None:
    with ProxyThread(tmp_path) as proxy:
        alive(proxy)
        (proxy.state_dir / "hosts" / "host-0" / "exit_code").write_text("3", encoding="utf-8")
        wait_for(lambda: len([one for one in messages(proxy) if "exit code 3" in one]) == 3)
        said = [one for one in messages(proxy) if "exit code 3" in one]
        assert said == [f"host-0: exit code 3, 'asked to end'; started again in {wait} s" for wait in ("0.5", "1", "2")]
        assert host(proxy)["note"].startswith("host-0: exit code 3")


def test_several_hosts(tmp_path: Path) -> None:
    with ProxyThread(tmp_path, "--host-processes", "2") as proxy:
        pids = {alive(proxy, "host-0"), alive(proxy, "host-1")}
        assert len(pids) == 2
        with proxy.client() as client:
            answer = client.deploy("ranking", write_model(tmp_path / "3"), wait=True)
        assert set(answer["model"]["versions"][0]["hosts"]) == {"host-0", "host-1"}


def test_a_host_that_was_started_by_hand_is_adopted_and_never_killed(tmp_path: Path) -> None:
    proxy = ProxyThread(tmp_path)
    proxy.state_dir.mkdir(parents=True)
    with by_hand(proxy, "host-0") as mine, by_hand(proxy, "other") as other, proxy:
        assert alive(proxy) == mine.pid
        assert host(proxy)["origin"] == host(proxy, "other")["origin"] == "adopted"
        with proxy.client() as client:
            client.deploy("ranking", write_model(tmp_path / "3"), wait=True)
            for name in ("host-0", "other"):
                with pytest.raises(PreconditionError, match=f"{name}: started by somebody else"):
                    client.drain(name)
            with pytest.raises(NotFoundError, match="host 'x': unknown, expected one of host-0"):
                client.drain("x")
        assert f"host-0: adopted, process {mine.pid} has its lock" in messages(proxy)
        assert f"other: adopted, process {other.pid}" in messages(proxy)
        proxy.stop()
        assert (mine.poll(), other.poll()) == (None, None)


def test_a_host_of_ours_takes_the_place_of_an_adopted_one(tmp_path: Path) -> None:
    proxy = ProxyThread(tmp_path)
    proxy.state_dir.mkdir(parents=True)
    with by_hand(proxy, "host-0") as mine, proxy:
        assert alive(proxy) == mine.pid
        mine.kill()
        mine.wait()
        wait_for(lambda: host(proxy)["alive"] and host(proxy)["origin"] == "started")
        assert "host-0: the adopted process is gone" in messages(proxy)


def test_a_killed_proxy_leaves_its_hosts_and_finds_them_again(tmp_path: Path) -> None:
    with ProxyProcess(tmp_path) as proxy:
        pid = alive(proxy)
        proxy.kill()
        assert proxy.host_pids() == [pid]
        proxy.start()
        assert alive(proxy) == pid
        assert host(proxy)["origin"] == "started"
        assert f"host-0: found running, process {pid}" in messages(proxy)
        # And it is still kept running, and ended in the end.
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: host(proxy)["alive"] and host(proxy)["pid"] != pid)
        assert proxy.stop() == 0
        assert proxy.host_pids() == []


def test_drain_stops_hosts_until_it_is_taken_back(tmp_path: Path) -> None:
    with ProxyThread(tmp_path) as proxy:
        pid = alive(proxy)
        with proxy.client() as client:
            # What is told at once is what was asked for, and not how it was before.
            assert client.drain()[0]["state"] in {"draining", "stopped"}
            client.drain()
            wait_for(lambda: not host(proxy)["alive"])
            assert client.status()["draining"]
            wait_for(lambda: "host-0: drained" in messages(proxy))
            assert not host(proxy)["alive"]
            (again,) = client.drain(drain=False)
            assert (again["state"], again["note"]) == ("stopped", "is to run again")
        assert alive(proxy) != pid


def test_the_end_waits_for_hosts_and_then_kills_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with ProxyThread(tmp_path, "--drain-timeout", "0.5") as proxy:
        alive(proxy)
        (proxy.state_dir / "hosts" / "host-0" / "drain_s").write_text("30", encoding="utf-8")
        proxy.stop()
        assert proxy.host_pids() == []
        assert "host-0: killed, it was not drained after 0.5 s" in caplog.messages


def test_hosts_may_outlive_the_proxy(tmp_path: Path) -> None:
    with ProxyThread(tmp_path, "--keep-hosts") as proxy:
        pid = alive(proxy)
        proxy.stop()
        assert proxy.host_pids() == [pid]


def test_a_host_that_is_no_longer_wanted_drains(tmp_path: Path) -> None:
    with ProxyProcess(tmp_path, "--host-processes", "2") as proxy:
        alive(proxy, "host-1")
        kept = alive(proxy, "host-0")
        proxy.kill()
        proxy.options = []
        proxy.start()
        wait_for(lambda: proxy.host_pids() == [kept])


def test_without_hosts_of_its_own_it_serves_through_those_of_others(tmp_path: Path) -> None:
    with ProxyThread(tmp_path, host="none") as proxy, proxy.client() as client:
        job = client.deploy("ranking", write_model(tmp_path / "3"))["job"]
        wait_for(lambda: "no host is running" in client.job(job["id"])["step"])
        with by_hand(proxy, "mine"):
            assert client.wait(job["id"], timeout=10)["state"] == "succeeded"

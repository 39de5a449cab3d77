# SPDX-License-Identifier: Apache-2.0
"""Real processes: hosts that end, adopted hosts, and hosts whose proxy was killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers.proxies.proxy_runs import Proxy, ProxyProcess, ProxyThread, host_program, wait_for, write_model
from serving_proxy.errors import NotFoundError, PreconditionError
from serving_proxy.hosts import supervisor


def host(proxy: Proxy, name: str = "host-0") -> dict[str, Any]:
    with proxy.client() as client:
        return next((host for host in client.status()["hosts"] if host["name"] == name), {})


def messages(proxy: Proxy) -> list[str]:
    with proxy.client() as client:
        return [event["message"] for event in client.events(limit=1000) if event["kind"] in {"host", "drain"}]


def alive(proxy: Proxy, name: str = "host-0") -> int:
    found = wait_for(lambda: host(proxy, name).get("alive") and host(proxy, name))
    return int(found["pid"])


@contextmanager
def by_hand(proxy: Proxy, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A host that was started by hand in the same state directory."""
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
        assert "host-0: ended by SIGKILL; restarted in 0.5 s" in messages(proxy)


def test_a_host_that_cannot_run_is_tried_less_and_less_often(tmp_path: Path) -> None:
    with ProxyThread(tmp_path) as proxy:
        alive(proxy)
        (proxy.state_dir / "hosts" / "host-0" / "exit_code").write_text("3", encoding="utf-8")

        def said() -> list[str]:
            return [message for message in messages(proxy) if "exit code 3" in message]

        wait_for(lambda: len(said()) >= 3)
        waits = [f"host-0: exit code 3, 'asked to end'; restarted in {wait} s" for wait in ("0.5", "1", "2")]
        assert said()[:3] == waits
        wait_for(lambda: (host(proxy)["note"] or "").startswith("host-0: exit code 3"))


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
                with pytest.raises(PreconditionError, match=f"{name}: not started by this proxy"):
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
            assert (again["state"], again["note"]) == ("stopped", "starts again")
        assert alive(proxy) != pid


def test_the_end_waits_for_hosts_and_then_kills_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with ProxyThread(tmp_path, "--drain-timeout", "0.5") as proxy:
        alive(proxy)
        (proxy.state_dir / "hosts" / "host-0" / "drain_s").write_text("30", encoding="utf-8")
        proxy.stop()
        assert proxy.host_pids() == []
        assert "host-0: killed, because it had not drained after 0.5 s" in caplog.messages
        # The host that comes next shall not think that it died of what it was loading.
        assert (proxy.state_dir / "hosts" / "host-0" / "killed").exists()


def test_hosts_start_with_the_models_of_a_configuration(tmp_path: Path) -> None:
    for number in (1, 2):
        write_model(tmp_path / "models" / "m" / str(number))
    config = tmp_path / "models.config"
    (tmp_path / "models" / "empty").mkdir()
    config.write_text(
        f'model_config_list {{ config {{ name: "m" base_path: "{tmp_path}/models/m" }} '
        f'config {{ name: "empty" base_path: "{tmp_path}/models/empty" }} }}',
        encoding="utf-8",
    )
    with ProxyThread(tmp_path / "proxy", "--config", str(config)) as proxy:
        lock = proxy.state_dir / "hosts" / "host-0" / "lock"
        wait_for(
            lambda: (
                lock.exists()
                or host(proxy).get("note") == "waits until the first models of the configuration can be loaded"
            )
        )
        wait_for(lock.exists)
        # A host that had found nothing would have been ready at once.
        assert proxy.desired()["models"].keys() == {"m"}
        alive(proxy)


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
            assert client.wait(job["id"], timeout=60)["state"] == "succeeded"


def test_a_host_that_is_stopped_is_seen_at_once_and_started_anew(tmp_path: Path) -> None:
    with ProxyThread(tmp_path) as proxy:
        first = alive(proxy)
        with proxy.client() as client:
            client.deploy("ranking", write_model(tmp_path / "3"), wait=True)
            # The silence of the first process must not count for the second, which takes a while to report.
            (proxy.state_dir / "hosts" / "host-0" / "start_s").write_text("2", encoding="utf-8")
            os.kill(first, signal.SIGSTOP)
            wait_for(lambda: host(proxy)["state"] == "hung")
            wait_for(lambda: client.versions("ranking")["versions"][0]["reason"] == "no host responds")
            wait_for(lambda: host(proxy)["alive"] and host(proxy)["pid"] != first)
            wait_for(lambda: client.versions("ranking")["versions"][0]["state"] == "ready")
        # How long that takes `make test-faults` measures; here others may have the CPUs.
        said = " ".join(messages(proxy))
        assert re.search(r"host-0: killed \(stopped for \d+ s\)(?!;)", said), said
        assert re.search(r"host-0: killed \(stopped for \d+ s\); restarted in 0\.5 s", said), said
        assert said.count("killed (") == 2, said
        assert not Path(f"/proc/{first}").exists()


def test_a_host_that_resumes_in_time_is_not_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The usual time may pass on a busy machine between a look of this test and the signal.
    monkeypatch.setattr(supervisor, "_STOPPED_S", 60.0)
    with ProxyThread(tmp_path) as proxy:
        first = alive(proxy)
        os.kill(first, signal.SIGSTOP)
        wait_for(lambda: host(proxy)["state"] == "hung")
        os.kill(first, signal.SIGCONT)
        wait_for(lambda: host(proxy)["state"] == "ready")
        assert host(proxy)["pid"] == first


def test_a_running_host_that_does_not_respond_is_restarted(tmp_path: Path) -> None:
    with ProxyThread(tmp_path, "--hang-timeout", "8") as proxy:
        first = alive(proxy)
        time.sleep(0.5)
        silent = proxy.state_dir / "hosts" / "host-0" / "silent"
        silent.write_text("yes", encoding="utf-8")
        wait_for(lambda: host(proxy)["state"] == "hung")
        assert host(proxy)["pid"] == first
        silent.unlink()
        wait_for(lambda: host(proxy)["state"] == "ready")
        silent.write_text("yes", encoding="utf-8")
        wait_for(lambda: host(proxy)["alive"] and host(proxy)["pid"] != first)
        killed = re.findall(r"killed \(no sign of life for (\d+) s\)", " ".join(messages(proxy)))
        assert killed
        assert min(map(int, killed)) >= 8
        # The new one has given no sign yet, as one of a former release never does: it is not taken for hung.
        wait_for(lambda: host(proxy)["state"] == "ready")
        time.sleep(4)
        assert host(proxy)["state"] == "ready"


def test_an_adopted_host_that_hangs_is_reported_and_not_killed(tmp_path: Path) -> None:
    with ProxyThread(tmp_path, "--hang-timeout", "1", host="none") as proxy, by_hand(proxy, "other") as other:
        alive(proxy, "other")
        other.send_signal(signal.SIGSTOP)
        wait_for(lambda: host(proxy, "other")["state"] == "hung")
        time.sleep(2)
        assert other.poll() is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_drains_hosts_before_the_proxy_ends(tmp_path: Path, number: signal.Signals) -> None:
    with ProxyProcess(tmp_path) as proxy:
        pid = alive(proxy)
        (proxy.state_dir / "hosts" / "host-0" / "drain_s").write_text("1", encoding="utf-8")
        begun = time.monotonic()
        proxy.process.send_signal(number)
        assert proxy.process.wait(120) == 0
        assert time.monotonic() - begun >= 1
        assert not Path(f"/proc/{pid}").exists()
        assert "shutting down: hosts drain" in proxy.log_path.read_text(encoding="utf-8")

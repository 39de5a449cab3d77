# SPDX-License-Identifier: Apache-2.0
"""Faults of the proxy: its loops continue after an error, and hosts keep running if the proxy ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from helpers.proxies.proxy_runs import ProxyThread, wait_for, write_model
from serving_proxy.control import cleaning, observer
from serving_proxy.control.cleaning import Cleaner
from serving_proxy.control.observer import Observer
from serving_proxy.deploy.control import Control
from serving_proxy.sources import watcher
from serving_proxy.sources.watcher import Watcher


def _fail(*_: object) -> None:
    raise KeyError("a fault")


@pytest.mark.parametrize(
    ("owner", "method"),
    [(Observer, "step"), (Cleaner, "clean"), (Watcher, "_follow_file"), (Control, "_note_host_faults")],
)
def test_a_loop_continues_after_a_fault(
    owner: type, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, period in ((observer, "PERIOD_S"), (cleaning, "_PERIOD_S"), (watcher, "POLL_S")):
        monkeypatch.setattr(module, period, 0.02)
    with ProxyThread(tmp_path, host="none") as proxy, proxy.client() as client:
        with monkeypatch.context() as patch:
            patch.setattr(owner, method, _fail)
            wait_for(lambda: [event for event in client.events() if event["kind"] == "fault"])
            events = client.status()["last_event"]
            wait_for(lambda: client.status()["models"] == [])
        assert client.status()["last_event"] == events
        called = asyncio.Event()
        before = getattr(owner, method)
        monkeypatch.setattr(owner, method, lambda *given: (called.set(), before(*given))[1])
        wait_for(called.is_set)


def test_hosts_keep_running_when_the_proxy_ends_by_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def end(_: Cleaner) -> None:
        while not (tmp_path / "now").exists():
            await asyncio.sleep(0.02)
        _fail()

    monkeypatch.setattr(Cleaner, "run", end)
    with pytest.raises(KeyError, match="a fault"), ProxyThread(tmp_path) as proxy:
        with proxy.client() as client:
            client.deploy("ranking", write_model(tmp_path / "3"), wait=True)
        before = proxy.host_pids()
        (tmp_path / "now").touch()
        wait_for(lambda: not proxy.is_running)
        assert proxy.host_pids() == before != []
        proxy.stop()

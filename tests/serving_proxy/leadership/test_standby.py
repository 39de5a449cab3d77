# SPDX-License-Identifier: Apache-2.0
"""What a proxy on standby does while the store does not answer."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from helpers.proxies.leading import Proxy
from serving_proxy.leadership.leading import Leadership
from serving_proxy.leadership.lease import StoreLease
from serving_proxy.leadership.replica import Replica
from serving_proxy.leadership.shared_store import SharedFolder
from serving_proxy.leadership.standby import reopen, stand_by


class _Counting(SharedFolder):
    """A folder that counts how often it is read."""

    reads = 0

    def get(self, name: str) -> bytes | None:
        """Read an object; None if there is none."""
        self.reads += 1
        return super().get(name)

    def numbers(self, folder: str) -> list[int]:
        """Return the numbers of the objects in a folder."""
        self.reads += 1
        return super().numbers(folder)


def _waiting(function: str, standby: Proxy, leadership: Leadership, ended: asyncio.Event) -> asyncio.Task[Any]:
    if function == "stand_by":
        return asyncio.create_task(stand_by(standby.replica, leadership, ended))
    return asyncio.create_task(reopen(partial(Replica, standby.store, standby.path, True), leadership, ended))


@pytest.mark.parametrize("function", ["reopen", "stand_by"])
def test_fault_of_the_store_is_logged_once_and_ends_when_the_store_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    monkeypatch.setattr(StoreLease, "is_apart", True)
    Proxy(SharedFolder(tmp_path / "shared"), tmp_path / "a").lead(1)
    store = _Counting(tmp_path / "shared")
    standby = Proxy(store, tmp_path / "b")
    leadership = Leadership(StoreLease(SharedFolder(tmp_path / "lease")), "http://b", 1.0)

    async def run() -> None:
        waiting = _waiting(function, standby, leadership, asyncio.Event())
        while store.reads < 5:
            await asyncio.sleep(0.01)
        assert leadership.is_cut_off
        (tmp_path / "away").rename(tmp_path / "shared")
        assert await waiting

    (tmp_path / "shared").rename(tmp_path / "away")
    store.reads = 0
    asyncio.run(asyncio.wait_for(run(), 60))
    assert not leadership.is_cut_off
    said = [record.message for record in caplog.records if "expected the store that proxies share" in record.message]
    assert len(said) == 1


@pytest.mark.parametrize("function", ["reopen", "stand_by"])
def test_proxy_ends_while_the_store_does_not_answer(tmp_path: Path, function: str) -> None:
    store = SharedFolder(tmp_path / "shared")
    standby = Proxy(store, tmp_path / "b")
    leadership = Leadership(StoreLease(SharedFolder(tmp_path / "lease")), "http://b", 600.0)
    (tmp_path / "shared").rename(tmp_path / "away")

    async def run() -> object:
        ended = asyncio.Event()
        waiting = _waiting(function, standby, leadership, ended)
        while not leadership.is_cut_off:
            await asyncio.sleep(0.01)
        ended.set()
        return await waiting

    assert not asyncio.run(asyncio.wait_for(run(), 60))

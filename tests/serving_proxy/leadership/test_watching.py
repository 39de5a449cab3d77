# SPDX-License-Identifier: Apache-2.0
"""A leader that changes nothing finds out that its store is gone."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.proxies.leading import Proxy
from serving_proxy.leadership import watching
from serving_proxy.leadership.leading import Leadership
from serving_proxy.leadership.lease import StoreLease
from serving_proxy.leadership.shared_store import SharedFolder
from serving_proxy.leadership.standby import stand_by
from serving_proxy.leadership.watching import patience, watch_store

_NEVER_S = 600.0


@pytest.fixture
def store(tmp_path: Path) -> SharedFolder:
    return SharedFolder(tmp_path / "shared")


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_LOOK_S", 0.02)


def _leader(store: SharedFolder, folder: Path) -> Proxy:
    made = Proxy(store, folder)
    made.lead(1)
    return made


def _watch(proxy: Proxy, patience_s: float) -> Coroutine[Any, Any, None]:
    return watch_store(proxy.replica.check_store, proxy.replica.lose, patience_s)


@pytest.mark.parametrize("other", ["empty", "of other proxies"])
def test_leader_that_changes_nothing_notices_that_its_store_is_replaced(
    store: SharedFolder, tmp_path: Path, other: str
) -> None:
    first = Proxy(store, tmp_path / "a")
    first.lead(1)
    store.folder.rename(tmp_path / "away")
    if other == "empty":
        store.folder.mkdir()
    else:
        alien = Proxy(SharedFolder(store.folder), tmp_path / "b")
        alien.replica.number = 40
        alien.lead(9)
    # It would go on until it is cancelled if the store were that of before.
    asyncio.run(asyncio.wait_for(_watch(first, 600.0), 60))
    assert first.lost


@pytest.mark.parametrize("fault", ["unreachable", "read-only"])
def test_leader_without_its_store_stops_to_lead(store: SharedFolder, tmp_path: Path, fault: str) -> None:
    first = _leader(store, tmp_path / "a")
    if fault == "unreachable":
        store.folder.rename(tmp_path / "away")
    else:
        # Root may write everywhere; in place of this folder there is nothing that can be written to.
        (store.folder / "checks").write_bytes(b"")
    asyncio.run(asyncio.wait_for(_watch(first, 0.2), 60))
    assert first.lost


def test_leader_whose_store_never_answers_stops_to_lead(store: SharedFolder, tmp_path: Path) -> None:
    first, answers = _leader(store, tmp_path / "a"), threading.Event()
    try:
        watch = watch_store(lambda: bool(answers.wait()) or None, first.replica.lose, 0.2)

        async def run() -> None:
            await asyncio.wait_for(watch, 60)
            answers.set()

        asyncio.run(run())
    finally:
        answers.set()
    assert first.lost


def test_leader_goes_on_after_a_short_fault_that_is_logged_once(
    store: SharedFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, checks = _leader(store, tmp_path / "a"), 0

    def check() -> None:
        nonlocal checks
        checks += 1
        first.replica.check_store()

    async def run() -> None:
        watch = asyncio.create_task(watch_store(check, first.replica.lose, _NEVER_S))
        store.folder.rename(tmp_path / "away")
        while checks < 3:
            await asyncio.sleep(0.01)
        (tmp_path / "away").rename(store.folder)
        while not (store.folder / "checks").exists():
            await asyncio.sleep(0.01)
        watch.cancel()

    asyncio.run(asyncio.wait_for(run(), 60))
    assert not first.lost
    first.repository.set_setting("x", 1)
    assert len([record for record in caplog.records if record.message.startswith("shared store: ")]) == 1


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system with few files, which is soon full."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=40", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mount: not permitted, expected the rights to mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_leader_of_a_full_store_goes_on_to_lead(small: Path, tmp_path: Path) -> None:
    first = _leader(SharedFolder(small), tmp_path / "a")
    first.replica.check_store()
    with pytest.raises(OSError, match="No space left"):
        for number in range(100):
            (small / f"file-{number}").touch()
    first.replica.check_store()


def test_standby_that_reaches_the_store_leads_instead(
    store: SharedFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoreLease, "is_apart", True)
    lease = StoreLease(SharedFolder(tmp_path / "lease"))
    first, second = Proxy(store, tmp_path / "a"), Proxy(SharedFolder(store.folder), tmp_path / "b")
    leading, standby = (Leadership(lease, f"http://{name}", _NEVER_S) for name in "ab")

    async def run() -> None:
        assert await stand_by(first.replica, leading, asyncio.Event())
        store.folder = tmp_path / "not mounted"
        keeping = asyncio.create_task(leading.keep())
        await watch_store(first.replica.check_store, first.replica.lose, 0.2)
        assert leading.lost.is_set()
        keeping.cancel()
        await leading.release()
        assert await stand_by(second.replica, standby, asyncio.Event())

    asyncio.run(asyncio.wait_for(run(), 60))
    assert standby.term == 2
    second.repository.set_setting("x", 1)


def test_patience_is_not_shorter_than_the_lease() -> None:
    assert [patience(lasts_s) for lasts_s in (1.0, 5.0, 60.0)] == [15.0, 15.0, 60.0]

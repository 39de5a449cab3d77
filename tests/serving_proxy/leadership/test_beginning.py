# SPDX-License-Identifier: Apache-2.0
"""The first leader of a store ends, fails or stands still at each of its writes; others go on from what is there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from helpers.proxies.leading import Proxy
from helpers.proxies.proxy_runs import ProxyThread, wait_for
from serving_proxy.errors import UnavailableError
from serving_proxy.leadership.journal import LOG, SNAPSHOTS, log_name
from serving_proxy.leadership.leading import Leadership
from serving_proxy.leadership.lease import Held, StoreLease
from serving_proxy.leadership.shared_store import SharedFolder
from serving_proxy.leadership.standby import stand_by

# The first database, the beginning of the term, its number, and the first snapshot of the term.
_WRITES = range(4)


class _Killed(BaseException):
    """Ends a proxy at once."""


class _Interrupted(SharedFolder):
    """A folder that calls a function before or after one of the writes."""

    def __init__(self, folder: Path, at: int, is_before: bool, act: Callable[[], None]) -> None:
        super().__init__(folder)
        self._left, self._is_before, self._act = at, is_before, act

    def create(self, name: str, data: bytes) -> bool:
        """Write an object unless there is one."""
        self._interrupt(True)
        is_ours = super().create(name, data)
        self._interrupt(False)
        return is_ours

    def put(self, name: str, data: bytes) -> None:
        """Write an object, or replace it as a whole."""
        self._interrupt(True)
        super().put(name, data)
        self._interrupt(False)

    @property
    def has_acted(self) -> bool:
        """Return whether the write has come."""
        return self._left < 0

    def _interrupt(self, is_before: bool) -> None:
        if is_before != self._is_before:
            return
        self._left -= 1
        if self._left == -1:
            self._act()


def _kill() -> None:
    raise _Killed


def _fail() -> None:
    raise UnavailableError("the network is down")


def _with_state(folder: Path, store: SharedFolder) -> Proxy:
    """Return a proxy with the state of an earlier time, in which it was alone."""
    made = Proxy(store, folder)
    made.repository.set_setting("x", 1)
    return made


@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("at", _WRITES)
def test_any_proxy_leads_after_one_that_was_killed_while_it_began(tmp_path: Path, at: int, is_before: bool) -> None:
    shared, is_written = tmp_path / "shared", (at, is_before) != (0, True)
    store = _Interrupted(shared, at, is_before, _kill)
    killed = _with_state(tmp_path / "a", store)
    with pytest.raises(_Killed):
        killed.lead(1)
    killed.replica.close()
    second = Proxy(SharedFolder(shared), tmp_path / "b")
    leading = second.lead(2)
    assert leading.setting("x") == (1 if is_written else None)
    leading.set_setting("y", 2)
    again = Proxy(SharedFolder(shared), tmp_path / "a")
    again.replica.catch_up()
    assert [again.repository.setting(name) for name in ("x", "y")] == [1 if is_written else None, 2]
    assert again.lead(3).setting("y") == 2
    assert second.lost is False
    with pytest.raises(UnavailableError, match="another proxy leads"):
        leading.set_setting("y", 3)


@pytest.mark.parametrize("at", _WRITES)
def test_a_proxy_that_was_killed_while_it_began_leads_when_it_is_started_again(tmp_path: Path, at: int) -> None:
    killed = _with_state(tmp_path / "a", _Interrupted(tmp_path / "shared", at, False, _kill))
    with pytest.raises(_Killed):
        killed.lead(1)
    killed.replica.close()
    again = Proxy(SharedFolder(tmp_path / "shared"), tmp_path / "a")
    assert again.lead(2).setting("x") == 1


@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("at", _WRITES)
def test_a_proxy_whose_store_fails_while_it_begins_leads_once_the_store_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, is_before: bool
) -> None:
    # The pause after a fault; the lease itself, which nobody renews here, must last until the end of the test.
    monkeypatch.setattr(Leadership, "period_s", 0.02)
    store = _Interrupted(tmp_path / "shared", at, is_before, _fail)
    proxy, lease = _with_state(tmp_path / "a", store), StoreLease(SharedFolder(tmp_path / "lease"))
    leadership = Leadership(lease, "http://a", 600.0)
    assert asyncio.run(asyncio.wait_for(stand_by(proxy.replica, leadership, asyncio.Event()), 60))
    assert store.has_acted
    proxy.repository.set_setting("y", 2)
    other = Proxy(SharedFolder(tmp_path / "shared"), tmp_path / "b")
    other.replica.catch_up()
    assert [other.repository.setting(name) for name in ("x", "y")] == [1, 2]


@pytest.mark.parametrize("at", _WRITES)
def test_of_two_proxies_that_begin_at_once_one_leads(tmp_path: Path, at: int) -> None:
    shared = tmp_path / "shared"

    def overtake() -> None:
        second.lead(2).set_setting("y", 2)

    first = _with_state(tmp_path / "a", _Interrupted(shared, at, True, overtake))
    second = Proxy(SharedFolder(shared), tmp_path / "b")
    with pytest.raises(UnavailableError, match="another proxy leads"):
        # It learns that it has been overtaken at the next write, which may be that of its first change.
        first.lead(1).set_setting("y", 1)
    assert not second.lost
    second.repository.set_setting("z", 3)
    for name in ("a", "c"):
        follower = Proxy(SharedFolder(shared), tmp_path / name)
        follower.replica.catch_up()
        assert [follower.repository.setting(name) for name in ("x", "y", "z")] == [None if at == 0 else 1, 2, 3]


def test_a_log_without_a_database_is_named_and_nothing_is_added(tmp_path: Path) -> None:
    store = SharedFolder(tmp_path / "shared")
    store.create(log_name(1), b'{"term": 1, "statements": []}')
    with pytest.raises(UnavailableError, match="1 transactions without the database that they change"):
        Proxy(store, tmp_path / "a").lead(2)
    assert store.numbers(LOG) == [1]
    assert store.numbers(SNAPSHOTS) == []


def test_an_empty_folder_is_left_to_a_proxy_that_may_begin_a_store(tmp_path: Path) -> None:
    store = SharedFolder(tmp_path / "shared")
    waiting = Proxy(store, tmp_path / "a", begins=False)
    for act in (waiting.replica.catch_up, lambda: waiting.lead(1)):
        with pytest.raises(UnavailableError, match=r"--shared-store: empty, .*waits until it is mounted.*--new-store"):
            act()
    assert list(store.folder.iterdir()) == []
    Proxy(SharedFolder(store.folder), tmp_path / "b").lead(1).set_setting("x", 1)
    assert waiting.lead(2).setting("x") == 1


def test_a_proxy_that_is_started_before_its_folder_is_mounted_waits_for_it(tmp_path: Path) -> None:
    store = SharedFolder(tmp_path / "not mounted")
    assert StoreLease(store).take(Held(1, "a", "http://a", 60.0, released=True))
    Proxy(store, tmp_path / "a").lead(1)
    (tmp_path / "shared").mkdir()
    options = ("--engine", "agents", "--shared-store", str(tmp_path / "shared"), "--lease-timeout", "6")
    # It has no state, like a machine that replaces another one.
    with ProxyThread(tmp_path / "b", *options) as second, second.client() as client:
        wait_for(lambda: "can neither follow nor lead" in _answer(second, "v1/status"))
        assert _health(second) == "standby"
        assert list((tmp_path / "shared").iterdir()) == []
        (tmp_path / "shared").rename(tmp_path / "mount point")
        (tmp_path / "not mounted").rename(tmp_path / "shared")
        wait_for(lambda: _health(second) == "ok")
        assert client.status()["term"] > 1


def _health(proxy: ProxyThread) -> str:
    return str(json.loads(_answer(proxy, "healthz"))["status"])


def _answer(proxy: ProxyThread, path: str) -> str:
    return httpx.get(f"{proxy.url}/{path}", trust_env=False, timeout=10).text

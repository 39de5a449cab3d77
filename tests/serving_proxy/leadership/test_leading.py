# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from serving_proxy.errors import UnavailableError
from serving_proxy.leadership import leading
from serving_proxy.leadership.leading import Leadership, request_limit
from serving_proxy.leadership.lease import Held, StoreLease
from serving_proxy.leadership.shared_store import SharedFolder


class Clock:
    def __init__(self) -> None:
        self.now = 5.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(leading, "boot_time", made)
    return made


@pytest.fixture
def lease(tmp_path: Path) -> StoreLease:
    return StoreLease(SharedFolder(tmp_path / "shared"))


def test_second_proxy_leads_once_the_first_has_not_renewed_for_the_time(lease: StoreLease, clock: Clock) -> None:
    async def run() -> None:
        first, second = Leadership(lease, "http://a", 6.0), Leadership(lease, "http://b", 60.0)
        assert await first.look()
        assert first.holds()
        assert not await second.look()
        clock.now += 4.0
        assert first.holds()
        assert not await second.look()
        # The holder stops before others begin.
        clock.now += 1.0
        assert not first.holds()
        assert not await second.look()
        clock.now += 1.1
        assert await second.look()
        assert (first.term, second.term) == (1, 2)
        assert not await first.look()
        assert first.leader == second.leader == "http://b"

    asyncio.run(run())


def test_renewal_keeps_the_lease_whatever_the_clocks_show(lease: StoreLease, clock: Clock) -> None:
    async def run() -> None:
        first, second = Leadership(lease, "http://a", 0.06), Leadership(lease, "http://b", 0.06)
        assert await first.look()
        keeping = asyncio.create_task(first.keep())
        assert not await second.look()
        before = lease.read()
        while lease.read() == before:
            await asyncio.sleep(0.01)
        # The other machine's clock jumps: it has seen a renewal, and measures the time from there.
        clock.now += 0.01
        assert not await second.look()
        keeping.cancel()

    asyncio.run(run())


def test_deposed_proxy_notices_at_the_next_renewal(lease: StoreLease) -> None:
    async def run() -> None:
        first = Leadership(lease, "http://a", 0.6)
        assert await first.look()
        assert lease.take(Held(2, "other", "http://b", 0.6))
        await asyncio.wait_for(first.keep(), 60)
        assert first.lost.is_set()
        assert not first.holds()

    asyncio.run(run())


def test_leader_whose_store_is_replaced_by_an_empty_one_no_longer_leads(lease: StoreLease, tmp_path: Path) -> None:
    async def run() -> None:
        first = Leadership(lease, "http://a", 0.6)
        assert await first.look()
        shared = tmp_path / "shared"
        shared.rename(tmp_path / "away")
        shared.mkdir()
        await asyncio.wait_for(first.keep(), 60)
        assert first.lost.is_set()
        assert not first.holds()
        assert list(shared.iterdir()) == []

    asyncio.run(run())


def test_lease_that_is_gone_is_not_written_again(lease: StoreLease, tmp_path: Path) -> None:
    held = Held(7, "a", "http://a", 1.0)
    assert lease.take(held)
    (tmp_path / "shared" / "terms" / f"{7:012d}").unlink()
    with pytest.raises(UnavailableError, match=r"terms/000000000007: gone, expected the earlier store"):
        lease.renew(held)
    assert lease.read() is None


def test_lease_of_another_proxy_in_another_store_is_not_overwritten(lease: StoreLease, tmp_path: Path) -> None:
    held, other = Held(1, "a", "http://a", 1.0), Held(1, "b", "http://b", 1.0)
    assert lease.take(held)
    (tmp_path / "shared").rename(tmp_path / "away")
    assert StoreLease(SharedFolder(tmp_path / "shared")).take(other)
    assert not lease.renew(held)
    assert lease.read() == other


def test_proxy_that_was_stopped_no_longer_leads_when_it_wakes_up(lease: StoreLease, clock: Clock) -> None:
    async def run() -> None:
        first = Leadership(lease, "http://a", 1.0)
        assert await first.look()
        clock.now += 100.0
        assert not first.holds()
        await asyncio.wait_for(first.keep(), 60)
        assert first.lost.is_set()

    asyncio.run(run())


def test_renewal_is_tried_again_at_once_if_its_failure_has_taken_long(
    lease: StoreLease, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # How long each renewal takes, and its result; None: no answer.
    renewals = iter([(request_limit(6.0), None), (0.0, None), (0.0, True), (0.0, False)])
    slept = []

    async def sleep(pause_s: float) -> None:
        slept.append(pause_s)
        clock.now += pause_s

    def renew(held: Held) -> bool:
        took_s, result = next(renewals)
        clock.now += took_s
        if result is None:
            raise UnavailableError("no answer")
        return result

    first = Leadership(lease, "http://a", 6.0)
    monkeypatch.setattr(lease, "renew", renew)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    assert asyncio.run(first.look())
    asyncio.run(first.keep())
    # A store that refuses at once is not asked without a pause.
    assert slept == [1.0, 0.0, 1.0, 1.0]
    assert first.lost.is_set()
    assert next(renewals, None) is None


def test_requests_are_short_enough_for_another_try() -> None:
    assert [request_limit(lasts_s) for lasts_s in (1.5, 6.0, 600.0)] == [0.5, 2.0, 5.0]


def test_released_lease_is_taken_at_once(lease: StoreLease) -> None:
    async def run() -> None:
        first, second = Leadership(lease, "http://a", 600.0), Leadership(lease, "http://b", 600.0)
        assert await first.look()
        assert not await second.look()
        await first.release()
        assert await second.look()
        # The former holder must not release what it no longer has.
        await first.release()
        assert not await first.look()

    asyncio.run(run())


def test_proxy_that_no_longer_leads_does_not_name_itself(lease: StoreLease) -> None:
    first = Leadership(lease, "http://a", 600.0)
    assert first.leader is None
    assert asyncio.run(first.look())
    assert first.leader == "http://a"
    first.resign()
    assert first.leader is None


def test_empty_store_is_refused_by_a_proxy_that_knows_a_term(lease: StoreLease) -> None:
    with pytest.raises(UnavailableError, match="no lease, although this proxy knows term 3"):
        asyncio.run(Leadership(lease, "http://a", 1.0).look(3))


def test_damaged_lease_is_named(tmp_path: Path, lease: StoreLease) -> None:
    lease.take(Held(1, "x", "http://a", 1.0))
    (tmp_path / "shared" / "terms" / f"{1:012d}").write_text("{")
    with pytest.raises(UnavailableError, match=r"terms/000000000001: .*expected the lease of a proxy"):
        lease.read()


def test_lease_apart_from_the_log_may_be_lost(lease: StoreLease, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoreLease, "is_apart", True)
    leadership = Leadership(lease, "http://a", 60.0)
    assert asyncio.run(leadership.look(3))
    assert leadership.term == 4

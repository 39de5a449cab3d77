# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.proxies.leading import Proxy
from helpers.proxies.lifecycle_records import deployed, settled
from helpers.system.s3 import s3_environment
from serving_proxy.deploy.placing import stored_placement
from serving_proxy.errors import PreconditionError, ProxyError, UnavailableError
from serving_proxy.leadership.journal import LOG, SNAPSHOTS, compact, log_name, write_snapshot
from serving_proxy.leadership.leading import Leadership
from serving_proxy.leadership.lease import StoreLease
from serving_proxy.leadership.replica import Replica
from serving_proxy.leadership.shared_store import SharedFolder, SharedStore, open_shared_store
from serving_proxy.leadership.standby import stand_by
from serving_proxy.records.models import Note
from serving_proxy.store import Repository, newest_schema
from serving_proxy.store.database import migrations


@pytest.fixture
def store(tmp_path: Path) -> SharedFolder:
    return SharedFolder(tmp_path / "shared")


@pytest.fixture(params=["folder", "bucket"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SharedStore]:
    """A shared folder, and a place of a bucket that no other test has."""
    if request.param == "folder":
        yield SharedFolder(tmp_path / "shared")
    else:
        with s3_environment(request.getfixturevalue("s3_port")):
            yield open_shared_store(f"s3://models/{tmp_path.name}")


def test_standby_has_the_whole_state(any_store: SharedStore, tmp_path: Path) -> None:
    first, second = Proxy(any_store, tmp_path / "a"), Proxy(any_store, tmp_path / "b")
    leading = first.lead(1)
    model = settled(deployed(deployed(None, 3), 4, traffic=1000))
    leading.save([model], [Note(kind="deploy", message="ranking/4: deployed", model="ranking", version=4)])
    job = leading.add_job("deploy", "ranking", 4)
    leading.finish_job(job.id, "succeeded")
    leading.set_setting("machines", ["m1"])
    second.replica.catch_up()
    following = second.repository
    assert following.models() == leading.models() == {"ranking": model}
    assert following.events() == leading.events()
    assert following.jobs() == leading.jobs()
    assert following.setting("machines") == ["m1"]
    leading.save([], [Note(kind="x", message="y")])
    second.replica.catch_up()
    assert following.last_event() == leading.last_event() == 2


def test_deposed_leader_changes_nothing(any_store: SharedStore, tmp_path: Path) -> None:
    first, second = Proxy(any_store, tmp_path / "a"), Proxy(any_store, tmp_path / "b")
    old = first.lead(1)
    old.set_setting("x", 1)
    new = second.lead(2)
    # It believes that it leads, since its clock stood still.
    with pytest.raises(UnavailableError, match="another proxy leads"):
        old.set_setting("x", 2)
    assert first.lost
    assert old.setting("x") == 1
    with pytest.raises(UnavailableError, match="no longer leads"):
        old.set_setting("x", 3)
    new.set_setting("x", 4)
    again = Proxy(any_store, tmp_path / "a")
    again.replica.catch_up()
    assert again.repository.setting("x") == 4


def test_only_one_of_two_proxies_begins_a_term(any_store: SharedStore, tmp_path: Path) -> None:
    first, second = Proxy(any_store, tmp_path / "a"), Proxy(any_store, tmp_path / "b")
    first.replica.catch_up()
    second.replica.catch_up()
    first.replica.lead(1, lambda: True, first.lose)
    with pytest.raises(UnavailableError):
        second.replica.lead(2, lambda: True, second.lose)


def test_leader_that_stood_still_while_the_log_was_compacted_changes_nothing(
    store: SharedFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, create = Proxy(store, tmp_path / "a"), Proxy(store, tmp_path / "b"), store.create
    old = first.lead(1)
    new = second.lead(2)
    for number in range(5):
        new.set_setting("x", number)
        write_snapshot(store, second.replica.number + number + 1, second.replica.database.serialize())
        compact(store)
    assert first.replica.number + 1 not in store.numbers(LOG)

    def wake_up(name: str, data: bytes) -> bool:
        first.leads = False
        return create(name, data)

    with monkeypatch.context() as patch:
        patch.setattr(store, "create", wake_up)
        with pytest.raises(UnavailableError, match="another proxy leads"):
            old.set_setting("x", -1)
    assert first.lost
    assert old.setting("x") is None


def test_former_state_of_a_single_proxy_is_kept(store: SharedFolder, tmp_path: Path) -> None:
    alone = Proxy(store, tmp_path / "a")
    alone.repository.set_setting("x", 1)
    alone.replica.close()
    Proxy(store, tmp_path / "a").lead(1)
    other = Proxy(store, tmp_path / "b")
    assert other.repository.setting("x") == 1


def test_proxy_that_was_away_starts_from_a_snapshot(any_store: SharedStore, tmp_path: Path) -> None:
    first, second = Proxy(any_store, tmp_path / "a"), Proxy(any_store, tmp_path / "b")
    leading = first.lead(1)
    second.replica.catch_up()
    for number in range(10):
        leading.set_setting("x", number)
    for number in (5, 9):
        write_snapshot(any_store, first.replica.number + number, first.replica.database.serialize())
    compact(any_store)
    assert min(any_store.numbers(LOG)) > second.replica.number + 1
    assert len(any_store.numbers(SNAPSHOTS)) == 2
    second.replica.catch_up()
    assert second.repository.setting("x") == 9


def test_empty_store_is_refused_by_a_proxy_that_has_led(store: SharedFolder, tmp_path: Path) -> None:
    first = Proxy(store, tmp_path / "a")
    first.lead(1)
    first.replica.close()
    with pytest.raises(UnavailableError, match=r"no database, although this proxy knows term 1.*is it mounted"):
        Proxy(SharedFolder(tmp_path / "other"), tmp_path / "a").lead(2)


def test_leader_whose_store_is_replaced_by_an_empty_one_confirms_nothing(store: SharedFolder, tmp_path: Path) -> None:
    first = Proxy(store, tmp_path / "a")
    leading = first.lead(1)
    leading.set_setting("x", 1)
    store.folder.rename(tmp_path / "away")
    store.folder.mkdir()
    with pytest.raises(UnavailableError, match="expected the earlier store"):
        leading.set_setting("x", 2)
    assert first.lost
    assert leading.setting("x") == 1
    assert list(store.folder.iterdir()) == []


async def _stand_by_until_cut_off(
    replica: Replica, leadership: Leadership, check: Callable[[Repository], object] = Repository.models
) -> None:
    ended = asyncio.Event()
    standing_by = asyncio.create_task(stand_by(replica, leadership, ended, check))
    async with asyncio.timeout(60):
        while not leadership.is_cut_off:
            await asyncio.sleep(0.01)
    ended.set()
    assert not await standing_by


def test_proxy_with_an_empty_store_leaves_a_lease_apart_from_it_to_others(
    store: SharedFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoreLease, "is_apart", True)
    first = Proxy(store, tmp_path / "a")
    first.lead(1)
    first.replica.close()
    lease = StoreLease(SharedFolder(tmp_path / "lease"))
    again = Proxy(SharedFolder(tmp_path / "empty"), tmp_path / "a")
    asyncio.run(_stand_by_until_cut_off(again.replica, Leadership(lease, "http://a", 600.0)))
    assert lease.read() is None


def test_proxy_that_cannot_begin_its_term_gives_the_lease_back(
    store: SharedFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str, data: bytes) -> bool:
        raise UnavailableError("the file system is read-only")

    monkeypatch.setattr(store, "create", fail)
    lease = StoreLease(SharedFolder(tmp_path / "lease"))
    first = Leadership(lease, "http://a", 600.0)
    asyncio.run(_stand_by_until_cut_off(Proxy(store, tmp_path / "a").replica, first))
    assert first.term == 1
    assert not first.holds()
    assert asyncio.run(Leadership(lease, "http://b", 600.0).look())


@contextmanager
def of_a_later_release() -> Iterator[None]:
    """The proxies of the block have one more migration."""
    more = migrations() | {newest_schema() + 1: "CREATE TABLE later (x INTEGER) STRICT;"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("serving_proxy.store.database.migrations", lambda: more)
        yield


def test_proxies_of_two_releases_with_different_schemas(store: SharedFolder, tmp_path: Path) -> None:
    first, standby, schema = Proxy(store, tmp_path / "a"), Proxy(store, tmp_path / "c"), newest_schema()
    first.lead(1).set_setting("x", 1)
    standby.replica.catch_up()
    with of_a_later_release():
        second = Proxy(store, tmp_path / "b")
        leading = second.lead(2)
        leading.set_setting("x", 2)
    # Neither the log nor a snapshot of the later release is taken over, however often this is tried.
    for _ in range(2):
        with pytest.raises(PreconditionError, match=rf"log/\d+: schema {schema + 1}, expected at most {schema}"):
            standby.replica.catch_up()
    compact(store)
    for number in store.numbers(LOG):
        store.remove(log_name(number))
    for _ in range(2):
        with pytest.raises(PreconditionError, match=rf"snapshots/\d+: schema {schema + 1}, expected at most {schema}"):
            standby.replica.catch_up()
    assert standby.repository.setting("x") == 1
    with pytest.raises(PreconditionError, match="a later release wrote it"):
        Proxy(store, tmp_path / "d")


def test_standby_that_cannot_read_a_record_leaves_the_lease_to_others(store: SharedFolder, tmp_path: Path) -> None:
    first, second = Proxy(store, tmp_path / "a"), Proxy(store, tmp_path / "b")
    first.lead(1).save([settled(deployed(None, 3))])
    with first.replica.database.transaction() as connection:
        connection.execute("UPDATE models SET record = json_insert(record, '$.wings', 2)")
    lease = StoreLease(store)
    asyncio.run(_stand_by_until_cut_off(second.replica, Leadership(lease, "http://b", 600.0)))
    assert lease.read() is None


def test_standby_that_cannot_read_the_placement_leaves_the_lease_to_others(store: SharedFolder, tmp_path: Path) -> None:
    first, second = Proxy(store, tmp_path / "a"), Proxy(store, tmp_path / "b")
    # A later release may also have given a known member a value that this one does not know.
    first.lead(1).set_setting("placement", {"models": {}, "handover_s": "soon", "wings": 2})
    lease = StoreLease(store)
    asyncio.run(_stand_by_until_cut_off(second.replica, Leadership(lease, "http://b", 600.0), stored_placement))
    assert lease.read() is None
    with pytest.raises(PreconditionError, match="placement has 'wings', which a later release wrote"):
        stored_placement(second.repository)


def test_transaction_that_cannot_be_written_is_rolled_back(
    store: SharedFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Proxy(store, tmp_path / "a")
    leading = first.lead(1)
    leading.set_setting("x", 1)

    def fail(name: str, data: bytes) -> bool:
        raise UnavailableError("the network is down")

    with monkeypatch.context() as patch:
        patch.setattr(store, "create", fail)
        with pytest.raises(UnavailableError, match="the network is down"):
            leading.set_setting("x", 2)
    assert leading.setting("x") == 1
    assert not first.lost
    leading.set_setting("x", 3)


def test_transaction_that_was_written_although_the_store_failed_is_committed(
    store: SharedFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, create = Proxy(store, tmp_path / "a"), store.create
    leading = first.lead(1)

    def fail(name: str, data: bytes) -> bool:
        create(name, data)
        raise UnavailableError("the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(store, "create", fail)
        leading.set_setting("x", 2)
    assert leading.setting("x") == 2
    leading.set_setting("x", 3)
    second = Proxy(store, tmp_path / "b")
    second.replica.catch_up()
    assert second.repository.setting("x") == 3


def test_damaged_log_is_named(store: SharedFolder, tmp_path: Path) -> None:
    Proxy(store, tmp_path / "a").lead(1).set_setting("x", 1)
    second = Proxy(store, tmp_path / "b")
    (number,) = [number for number in store.numbers(LOG) if number > second.replica.number]
    store.put(f"{LOG}/{number:012d}", b'{"statements": [["INSERT')
    with pytest.raises(ProxyError, match="expected a transaction of a proxy"):
        second.replica.catch_up()

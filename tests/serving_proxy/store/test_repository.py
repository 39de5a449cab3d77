# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.proxies.lifecycle_records import deployed, settled
from serving_proxy.deploy.changes import promote, start_ramp
from serving_proxy.errors import PreconditionError
from serving_proxy.records.models import Model, Note, Policy, Settings
from serving_proxy.store import Database, Repository
from serving_proxy.store import repository as module
from serving_proxy.store.repository import HostRow


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    database = Database(tmp_path / "db")
    yield Repository(database)
    database.close()


def rich_model() -> Model:
    settings = Settings(config={"session_num": 2}, cpuset="0", priority=-1)
    model = deployed(
        deployed(None, 3), 4, traffic=1000, shadow=5, settings=settings, labels=("canary",), slo_p99_ms=20.0
    )
    model = settled(deployed(model, 5))
    model = start_ramp(model, 4, 5000, 60.0, ()).model
    return settled(promote(model, 5).model).change(base_path="/models", policy=Policy(count=2), key_input="user")


@pytest.mark.parametrize(("table", "what"), [("models", "model ranking"), ("versions", "version ranking/3")])
def test_a_record_of_a_later_release_is_refused(repository: Repository, tmp_path: Path, table: str, what: str) -> None:
    repository.save([settled(deployed(None, 3))])
    connection = sqlite3.connect(tmp_path / "db")
    with connection:
        connection.execute(f"UPDATE {table} SET record = json_insert(record, '$.wings', 2)")
    connection.close()
    with pytest.raises(PreconditionError, match=rf"db: {what} has 'wings', which a later release wrote, expected"):
        repository.models()


def test_a_model_comes_back_as_it_was(repository: Repository, tmp_path: Path) -> None:
    model = rich_model()
    repository.save([model, Model(name="empty")])
    database = Database(tmp_path / "db")
    assert Repository(database).models() == {"ranking": model, "empty": Model(name="empty")}
    database.close()


def test_saving_again_replaces(repository: Repository) -> None:
    model = rich_model()
    repository.save([model])
    fewer = model.change(versions={4: model.versions[4]})
    repository.save([fewer])
    assert repository.models() == {"ranking": fewer}
    repository.remove("ranking")
    assert repository.models() == {}


def test_events_by_model_after_one_and_newest(repository: Repository) -> None:
    notes = [Note(kind="x", message=str(n), model="ab"[n % 2], version=n, data={"n": n}) for n in range(1, 8)]
    events = repository.save([], notes, at=5.0)
    assert [event.message for event in events] == [str(n) for n in range(1, 8)]
    assert repository.last_event() == events[-1].id
    assert repository.events(after=events[4].id) == events[5:]
    assert repository.events(limit=2) == events[:2]
    assert repository.events(limit=2, newest=True) == events[-2:]
    assert [event.version for event in repository.events(model="a")] == [2, 4, 6]


def test_the_event_log_is_bounded(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_EVENTS", 50)
    for _ in range(25):
        repository.save([], [Note(kind="x", message="m")] * 10)
    found = repository.events(limit=1000)
    assert len(found) <= 150
    assert found[-1].id == 250


def test_jobs_are_stored_and_finished(repository: Repository) -> None:
    first, second = repository.add_job("deploy", "a", 1), repository.add_job("deploy", "a", 2)
    assert repository.jobs(running=True) == [second, first]
    repository.finish_job(first.id, "failed", "reason")
    found = repository.job(first.id)
    assert found is not None
    assert (found.state, found.error) == ("failed", "reason")
    assert found.finished is not None
    assert repository.jobs(running=True) == [second]
    assert repository.jobs(limit=1) == [second]
    assert repository.job(99) is None


def test_old_jobs_are_forgotten(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_JOBS", 5)
    for version in range(1, 30):
        repository.finish_job(repository.add_job("deploy", "a", version).id, "succeeded")
    assert len(repository.jobs()) <= 6


def test_hosts_and_settings(repository: Repository) -> None:
    row = HostRow("host-0", 12, 345, ["python", "-m", "x"], 2)
    repository.save_host(row)
    repository.save_host(row)
    assert repository.hosts() == {"host-0": row}
    assert repository.setting("a") is None
    repository.set_setting("a", {"b": [1]})
    assert repository.setting("a") == {"b": [1]}

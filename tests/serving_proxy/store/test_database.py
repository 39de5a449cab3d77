# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from serving_proxy.errors import ExhaustedError, PreconditionError, ProxyError, UnavailableError
from serving_proxy.store.database import Database, StateLock, migrations


def test_migrations_are_numbered_without_gaps() -> None:
    assert list(migrations()) == list(range(1, len(migrations()) + 1))


def test_a_new_database_has_the_newest_schema(tmp_path: Path) -> None:
    database = Database(tmp_path / "db")
    assert database.connection.execute("PRAGMA user_version").fetchone() == (max(migrations()),)
    assert database.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    database.close()
    Database(tmp_path / "db").close()


def test_migrations_resume_where_they_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Database(tmp_path / "db").close()
    newest = max(migrations())
    more = migrations() | {newest + 1: "CREATE TABLE later (x INTEGER) STRICT;"}
    monkeypatch.setattr("serving_proxy.store.database.migrations", lambda: more)
    database = Database(tmp_path / "db")
    assert database.connection.execute("SELECT count(*) FROM later").fetchone() == (0,)
    database.close()


def test_a_migration_that_fails_leaves_the_schema_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Database(tmp_path / "db").close()
    newest = max(migrations())
    wrong = migrations() | {newest + 1: "CREATE TABLE later (x INTEGER) STRICT; CREATE TABLE events (x);"}
    monkeypatch.setattr("serving_proxy.store.database.migrations", lambda: wrong)
    with pytest.raises(ProxyError, match="table events already exists"):
        Database(tmp_path / "db")
    monkeypatch.undo()
    database = Database(tmp_path / "db")
    assert database.connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'later'").fetchone() == (0,)
    database.close()


def test_a_later_schema_is_refused(tmp_path: Path) -> None:
    Database(tmp_path / "db").close()
    connection = sqlite3.connect(tmp_path / "db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(PreconditionError, match=rf"schema 99, expected at most {max(migrations())}"):
        Database(tmp_path / "db")


def test_a_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "db").write_bytes(b"no database at all" * 100)
    with pytest.raises(ProxyError, match="file is not a database, expected a database of this proxy"):
        Database(tmp_path / "db")


def test_a_transaction_is_all_or_nothing(tmp_path: Path) -> None:
    database = Database(tmp_path / "db")
    with pytest.raises(ZeroDivisionError), database.transaction() as connection:
        connection.execute("INSERT INTO settings VALUES ('a', '1')")
        raise ZeroDivisionError
    assert database.connection.execute("SELECT count(*) FROM settings").fetchone() == (0,)
    database.close()


_FILL = """
import resource, sys
from pathlib import Path
from serving_proxy.errors import ExhaustedError
from serving_proxy.store import Database, Repository
from serving_proxy.records.models import Model, Note

repository = Repository(Database(Path(sys.argv[1])))
repository.save([Model(name="a")])
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
count = 0
try:
    while True:
        repository.save([Model(name="a", labels={"n": count})], [Note(kind="x", message="m" * 4000)])
        count += 1
except ExhaustedError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert repository.models()["a"].labels == ({"n": count - 1} if count else {}), count
repository.save([Model(name="b")])
print(count)
"""


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "db"
    command = [sys.executable, "-c", _FILL, str(path)]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=Path.cwd(), check=False)
    assert answer.returncode == 0, answer.stderr
    error, count = answer.stdout.splitlines()
    assert re.fullmatch(rf"{re.escape(str(path))}: .*, expected room to write; nothing was changed", error)
    assert int(count) > 3
    database = Database(path)
    assert database.connection.execute("SELECT name FROM models").fetchall() == [("a",), ("b",)]
    database.close()


def test_a_second_proxy_is_refused_and_named(tmp_path: Path) -> None:
    with StateLock(tmp_path) as lock:
        lock.tell(pid=4711, admin="http://127.0.0.1:1")
        with pytest.raises(PreconditionError) as refused:
            StateLock(tmp_path)
        assert str(refused.value) == f"{tmp_path}: in use by process 4711, expected no other proxy or agent"
    StateLock(tmp_path).close()


def test_the_lock_file_names_its_owner(tmp_path: Path) -> None:
    with StateLock(tmp_path) as lock:
        lock.tell(pid=os.getpid(), admin="http://127.0.0.1:12345/long")
        lock.tell(pid=os.getpid(), admin="x")
        assert json.loads((tmp_path / "proxy.lock").read_text(encoding="utf-8")) == {"pid": os.getpid(), "admin": "x"}


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    code = "import sys, os, signal; from pathlib import Path; from serving_proxy.store import StateLock;"
    code += "lock = StateLock(Path(sys.argv[1])); os.kill(os.getpid(), signal.SIGKILL)"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert (tmp_path / "proxy.lock").exists()
    StateLock(tmp_path).close()


def test_errors_of_a_full_disk_are_known(tmp_path: Path) -> None:
    database = Database(tmp_path / "db")
    with pytest.raises(ExhaustedError), database.faults():
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error
    database.close()


def test_a_locked_database_is_reported(tmp_path: Path) -> None:
    database, other = Database(tmp_path / "db"), sqlite3.connect(tmp_path / "db", isolation_level=None)
    database.connection.execute("PRAGMA busy_timeout = 10")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(UnavailableError, match="locked, expected to be its only writer"), database.transaction():
        pass
    other.close()
    database.connection.execute("PRAGMA query_only = 1")
    with pytest.raises(UnavailableError, match="readonly"), database.transaction() as connection:
        connection.execute("DELETE FROM models")
    database.close()

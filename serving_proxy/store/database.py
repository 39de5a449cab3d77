# SPDX-License-Identifier: Apache-2.0
"""The SQLite file of a state directory, its numbered migrations, and the lock that keeps a second proxy out."""

from __future__ import annotations

import fcntl
import json
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from serving_proxy.errors import ExhaustedError, PreconditionError, ProxyError, UnavailableError
from serving_proxy.system.files import open_private

_NAME = re.compile(r"(\d{4})_\w+\.sql")


class StateLock:
    """Locks a state directory for this process; the lock ends with the process, for whatever reason.

    Raises
    ------
    PreconditionError
        Another proxy has it.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "proxy.lock"
        self._file = open_private(self.path)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = _owner(os.pread(self._file, 4096, 0))
            os.close(self._file)
            raise PreconditionError(f"{folder}: in use by {owner}, expected no other proxy or agent") from error
        self.tell(pid=os.getpid())

    def tell(self, **values: Any) -> None:
        """Write the values about this proxy into the lock's file, for people and for clients that need the admin
        address.
        """
        text = json.dumps(values).encode() + b"\n"
        # Padded to more than any earlier text, so that a reader never sees the end of an older one.
        os.pwrite(self._file, text.ljust(1024), 0)

    def close(self) -> None:
        """Release the lock."""
        os.close(self._file)

    def __enter__(self) -> StateLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Writer(Protocol):
    """What a transaction writes to: a connection, or one whose statements are recorded."""

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> sqlite3.Cursor:
        """Execute a statement."""

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> sqlite3.Cursor:
        """Execute a statement once for each row."""


class TransactionLog(Protocol):
    """Where transactions are written before they are committed."""

    def append(self, statements: Sequence[tuple[str, bool, list[Any]]], /) -> None:
        """Write a transaction: the SQL of each statement, whether it has several rows, and its values or rows."""

    def diverge(self) -> None:
        """Note that a transaction was written here and is not in the database."""


class _Recorder:
    """Executes statements and keeps those that write."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.statements: list[tuple[str, bool, list[Any]]] = []

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> sqlite3.Cursor:
        if not sql.lstrip().upper().startswith("SELECT"):
            self.statements.append((sql, False, list(values)))
        return self._connection.execute(sql, values)

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> sqlite3.Cursor:
        kept = [list(row) for row in rows]
        self.statements.append((sql, True, kept))
        return self._connection.executemany(sql, kept)


def _owner(text: bytes) -> str:
    try:
        return f"process {int(json.loads(text)['pid'])}"
    except (ValueError, KeyError, TypeError):
        return "another process"


class Database:
    """The SQLite connection of a state directory; used by one thread at a time.

    Attributes
    ----------
    journal : TransactionLog or None
        Gets each transaction before it is committed.

    Raises
    ------
    PreconditionError
        A later version of the proxy wrote the file.
    ProxyError
        It is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal: TransactionLog | None = None
        # SQLite would create the file with other modes; the files that belong to it get the modes of this one.
        os.close(open_private(path))
        # Each statement commits itself; `transaction` begins a transaction of several statements.
        with self.faults():
            self.connection = sqlite3.connect(path, isolation_level=None, timeout=5.0, check_same_thread=False)
        try:
            with self.faults():
                self.connection.execute("PRAGMA journal_mode = WAL")
                # A change that was reported as done must survive a loss of power.
                self.connection.execute("PRAGMA synchronous = FULL")
                self.connection.execute("PRAGMA foreign_keys = ON")
                self.connection.execute("PRAGMA journal_size_limit = 4194304")
                self._migrate()
        except BaseException:
            self.connection.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[Writer]:
        """Write everything that the block writes, or nothing.

        Raises
        ------
        ExhaustedError
            The disk is full.
        UnavailableError
            Another process has locked the database, or it cannot be written to.
        """
        with self.faults():
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                if self.journal is None:
                    yield self.connection
                    self.connection.execute("COMMIT")
                else:
                    recorder = _Recorder(self.connection)
                    yield recorder
                    self._commit_recorded(self.journal, recorder)
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    def _commit_recorded(self, journal: TransactionLog, recorder: _Recorder) -> None:
        journal.append(recorder.statements)
        try:
            self.connection.execute("COMMIT")
        except BaseException:
            journal.diverge()
            raise

    def replay(self, statements: Iterable[tuple[str, bool, list[Any]]]) -> None:
        """Execute a transaction that another process has recorded."""
        with self.transaction() as connection:
            for sql, has_rows, values in statements:
                if has_rows:
                    connection.executemany(sql, values)
                else:
                    connection.execute(sql, values)

    def serialize(self) -> bytes:
        """Return the whole database."""
        with self.faults():
            return self.connection.serialize()

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Convert SQLite's errors to the proxy's errors."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}:
                raise ExhaustedError(f"{self.path}: {error}, expected room to write; nothing was changed") from error
            if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY}:
                message = f"{self.path}: {error}, expected to be its only writer; nothing was changed"
                raise UnavailableError(message) from error
            raise ProxyError(f"{self.path}: {error}, expected a database of this proxy") from error

    def _migrate(self) -> None:
        (found,) = self.connection.execute("PRAGMA user_version").fetchone()
        steps = migrations()
        check_schema(found, self.path)
        for number in range(found + 1, max(steps) + 1):
            # Each script is one transaction: if the proxy is killed meanwhile, the migration starts again.
            script = f"BEGIN IMMEDIATE;\n{steps[number]}\nPRAGMA user_version = {number};\nCOMMIT;"
            try:
                self.connection.executescript(script)
            except sqlite3.DatabaseError:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise


def check_schema(found: int, where: object) -> None:
    """Check that this release knows a schema of the database.

    Parameters
    ----------
    found : int
        Number of the last migration.
    where : object
        What has it, for the message.

    Raises
    ------
    PreconditionError
    """
    newest = newest_schema()
    if found > newest:
        raise PreconditionError(f"{where}: schema {found}, expected at most {newest}; a later release wrote it")


def newest_schema() -> int:
    """Return the schema that this release writes: the number of the last migration."""
    return max(migrations())


def schema_of(database: bytes) -> int:
    """Return the schema of a whole database."""
    # The user version, in the header of SQLite's file format.
    return int.from_bytes(database[60:64], "big")


@cache
def migrations() -> dict[int, str]:
    """Return the numbered SQL scripts."""
    folder = resources.files("serving_proxy.store").joinpath("migrations")
    found = {}
    for file in folder.iterdir():
        matched = _NAME.fullmatch(file.name)
        if matched:
            found[int(matched[1])] = file.read_text(encoding="utf-8")
    return dict(sorted(found.items()))

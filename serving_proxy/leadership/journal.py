# SPDX-License-Identifier: Apache-2.0
"""The log of all changes of the database, in the store that proxies share.

Each transaction is an object with the next number, and is written before the transaction is committed. Only one proxy
can create the object of a number: a proxy that no longer leads, and does not know it yet, cannot change anything. The
first object of a term says that the term has begun. A snapshot is the whole database after the object of its number;
that of number 0 is what the log begins with.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

from serving_proxy.errors import ExhaustedError, ProxyError, UnavailableError
from serving_proxy.leadership.shared_store import SharedStore
from serving_proxy.store import check_schema, newest_schema

log = logging.getLogger("serving_proxy.leadership")

LOG, SNAPSHOTS = "log", "snapshots"
_CHECK = "checks/000000000000"
SNAPSHOT_EVERY = 500
_KEPT_SNAPSHOTS = 2
_OTHER_LEADS = "another proxy leads, expected a request to that one; nothing was changed"

Statement = tuple[str, bool, list[Any]]
"""SQL, whether it is executed once for each of several lists of values, and the values."""


class Journal:
    """Writes the log of one term.

    Parameters
    ----------
    store : SharedStore
    number : int
        Number of the last object.
    term : int
    holds : callable
        Returns whether this proxy leads.
    lose : callable
        Called when this proxy cannot know any more whether its database is that of the log.
    """

    def __init__(
        self, store: SharedStore, number: int, term: int, holds: Callable[[], bool], lose: Callable[[], None]
    ) -> None:
        self._store = store
        self.number = number
        self._term = term
        self._holds = holds
        self._lose = lose
        self._is_lost = False

    def begin(self) -> None:
        """Say that the term has begun; from then on no earlier term can add anything.

        Raises
        ------
        UnavailableError
            Another proxy has begun a term, or the store cannot be reached.
        """
        self.append([])
        self._check_not_compacted()

    def append(self, statements: Sequence[Statement]) -> None:
        """Write a transaction that is about to be committed.

        Raises
        ------
        UnavailableError
            Another proxy leads, or the store cannot be reached.
        ExhaustedError
            The store is full.
        """
        if self._is_lost or not self._holds():
            raise UnavailableError("this proxy no longer leads, expected the one that does; nothing was changed")
        data = json.dumps({"term": self._term, "schema": newest_schema(), "statements": statements}).encode()
        name = log_name(self.number + 1)
        try:
            is_ours = self._store.create(name, data)
        except ExhaustedError:
            raise
        except ProxyError:
            # It may have been written all the same.
            is_ours = self._was_written(name, data)
            if not is_ours:
                raise
        if not is_ours:
            self.diverge()
            raise UnavailableError(_OTHER_LEADS)
        self.number += 1
        if not self._holds():
            # This process may have stood still for long before the object was created.
            self._check_not_compacted()

    def diverge(self) -> None:
        """Stop to lead, because the database and the log may differ."""
        self._is_lost = True
        self._lose()

    def _check_not_compacted(self) -> None:
        """Check that the last object is new, rather than one with a number that the log had already and removed."""
        newest = newest_snapshot(self._store)
        if newest is not None and newest >= self.number:
            self._store.remove(log_name(self.number))
            self.diverge()
            raise UnavailableError(_OTHER_LEADS)

    def _was_written(self, name: str, data: bytes) -> bool:
        try:
            found = self._store.get(name)
        except ProxyError:
            self.diverge()
            raise
        if found is not None and found != data:
            self.diverge()
        return found == data


def read_entry(store: SharedStore, number: int) -> list[Statement] | None:
    """Read a transaction of the log; None if there is none.

    Raises
    ------
    UnavailableError
        It cannot be read, or is damaged.
    PreconditionError
        It is for a database of a later release.
    """
    data = store.get(log_name(number))
    if data is None:
        return None
    try:
        found = json.loads(data)
        # Earlier releases did not write it; all of them had the first schema.
        check_schema(int(found.get("schema", 1)), log_name(number))
        return [(str(sql), bool(many), list(values)) for sql, many, values in found["statements"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnavailableError(f"{log_name(number)}: {error}, expected a transaction of a proxy") from error


def newest_snapshot(store: SharedStore) -> int | None:
    """Return the number of the newest snapshot; None if there is none."""
    found = store.numbers(SNAPSHOTS)
    return found[-1] if found else None


def create_first_snapshot(store: SharedStore, database: bytes) -> None:
    """Write the database from which the log of an empty store begins.

    It comes before the first object of the log: a log without it could not be continued.

    Raises
    ------
    UnavailableError
        Another proxy has written it, or the store cannot be reached.
    """
    if not store.create(snapshot_name(0), database):
        raise UnavailableError(_OTHER_LEADS)


def write_snapshot(store: SharedStore, number: int, database: bytes) -> None:
    """Write a snapshot, the whole database after a transaction."""
    store.put(snapshot_name(number), database)


def write_check(store: SharedStore) -> None:
    """Write an object that nobody reads; raise the errors of `put`."""
    store.put(_CHECK, b"")


def compact(store: SharedStore) -> None:
    """Remove the objects that the newest snapshots make unnecessary; a bucket takes milliseconds for each."""
    snapshots = store.numbers(SNAPSHOTS)
    for older in snapshots[:-_KEPT_SNAPSHOTS]:
        store.remove(snapshot_name(older))
    for entry in store.numbers(LOG):
        if snapshots and entry <= snapshots[-_KEPT_SNAPSHOTS:][0]:
            store.remove(log_name(entry))


def log_name(number: int) -> str:
    """Return the name of a transaction."""
    return f"{LOG}/{number:012d}"


def snapshot_name(number: int) -> str:
    """Return the name of a snapshot."""
    return f"{SNAPSHOTS}/{number:012d}"

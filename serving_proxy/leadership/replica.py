# SPDX-License-Identifier: Apache-2.0
"""The copy of the leader's database that a proxy keeps, made from a snapshot and the log."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import Callable
from pathlib import Path

from serving_proxy.errors import ExhaustedError, ProxyError, UnavailableError
from serving_proxy.leadership.journal import (
    LOG,
    SNAPSHOT_EVERY,
    Journal,
    compact,
    create_first_snapshot,
    newest_snapshot,
    read_entry,
    snapshot_name,
    write_check,
    write_snapshot,
)
from serving_proxy.leadership.shared_store import OtherStoreError, SharedStore
from serving_proxy.store import Database, Repository, check_schema, schema_of
from serving_proxy.system.files import replace

log = logging.getLogger("serving_proxy.leadership")

_LOOK_S = 5.0
_TERM = "term"


class Replica:
    """The database of a state directory, which follows the log.

    Parameters
    ----------
    store : SharedStore
    path : Path
        The database. If the proxies have one already, it replaces what this file contained.
    begins : bool
        Whether this proxy may lead if the store is empty, and so begin a new one.
    """

    def __init__(self, store: SharedStore, path: Path, begins: bool) -> None:
        self._store = store
        self._begins = begins
        self._path = path
        self._snapshot_at = 0
        self.number = 0
        self._readable_at = -1
        self._knows_snapshot = self._restore()
        self.database = Database(path)

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    @property
    def known_term(self) -> int:
        """Return the largest term of which the database has the state; 0 if there has been none."""
        found = Repository(self.database).setting(_TERM)
        return found if isinstance(found, int) else 0

    def catch_up(self) -> None:
        """Apply all transactions that have been added to the log.

        Raises
        ------
        ProxyError
            The store cannot be reached, or something in it is damaged; or it is empty, and this proxy knows a term or
            must not begin one.
        """
        while True:
            entry = read_entry(self._store, self.number + 1) if self._knows_snapshot else None
            if entry is not None:
                self.database.replay(entry)
                self.number += 1
            elif self._is_behind():
                self.database.close()
                try:
                    self._knows_snapshot = self._restore()
                finally:
                    self.database = Database(self._path)
            else:
                return

    def check_readable(self, check: Callable[[Repository], object]) -> None:
        """Call `check` with the records, unless it has returned for them before."""
        if self._readable_at != self.number:
            check(Repository(self.database))
            self._readable_at = self.number

    def lead(self, term: int, holds: Callable[[], bool], lose: Callable[[], None]) -> None:
        """Begin a term: from now on this database's transactions are the next ones of the log.

        Whenever this ends early, also because the process is killed, the store has a database with its log, or nothing,
        so that any proxy can lead next; this one calls `catch_up` before it tries again.

        Raises
        ------
        ProxyError
            Another proxy has begun a term; or the store is empty, and this proxy knows a term or must not begin one; or
            the store cannot be reached or written to.
        """
        try:
            if self._newest() is None:
                log.warning("the shared store is empty: a new one begins with what this proxy has deployed")
                create_first_snapshot(self._store, self.database.serialize())
            journal = Journal(self._store, self.number, term, holds, lose)
            journal.begin()
            self.database.journal = journal
            Repository(self.database).set_setting(_TERM, term)
            self._journal = journal
            write_snapshot(self._store, journal.number, self.database.serialize())
            self._snapshot_at = journal.number
        except BaseException:
            # The log may have more than this database. It is restored, since transactions would be applied twice.
            self.database.journal, self._knows_snapshot = None, False
            raise

    async def keep_snapshots(self) -> None:
        """Write a snapshot whenever the log has grown much since the last one, until the task is cancelled.

        What snapshots make unnecessary is removed here, while the lease is renewed beside it.
        """
        is_compact, fault = False, ""
        while True:
            number = self._journal.number
            try:
                if number - self._snapshot_at >= SNAPSHOT_EVERY:
                    await asyncio.to_thread(write_snapshot, self._store, number, self.database.serialize())
                    self._snapshot_at, is_compact = number, False
                if not is_compact:
                    await asyncio.to_thread(compact, self._store)
                    is_compact = True
                fault = ""
            except ProxyError as error:
                if str(error) != fault:
                    fault = str(error)
                    log.warning("snapshot: %s", fault)
            await asyncio.sleep(_LOOK_S)

    def check_store(self) -> None:
        """Check that this leader has the store in which it began to lead.

        Raises
        ------
        OtherStoreError
            The newest snapshot cannot be one that this proxy has written.
        ProxyError
            The store cannot be read, or not be written to. A store that is full has been reached; a standby could not
            write to it either.
        """
        # Before the look: another thread may write a snapshot meanwhile.
        written = self._snapshot_at
        newest = newest_snapshot(self._store)
        # A write that failed may have been carried out all the same.
        if newest is None or not written <= newest <= self._journal.number:
            found = "no snapshot" if newest is None else f"a snapshot of transaction {newest}"
            raise OtherStoreError(f"--shared-store: {found}, expected that of transaction {written}; is it mounted?")
        try:
            write_check(self._store)
        except ExhaustedError as error:
            if getattr(error.__cause__, "errno", None) not in {errno.ENOSPC, errno.EDQUOT}:
                raise

    def lose(self) -> None:
        """Stop leading."""
        self._journal.diverge()

    def _newest(self) -> int | None:
        """Return the number of the newest snapshot; raise UnavailableError if there is none, but must be one."""
        newest = newest_snapshot(self._store)
        if newest is None and self.known_term > 0:
            raise UnavailableError(
                f"--shared-store: no database, although this proxy knows term {self.known_term}, expected the earlier "
                "store; is it mounted?"
            )
        if newest is None and (entries := self._store.numbers(LOG)):
            raise UnavailableError(
                f"--shared-store: {len(entries)} transactions without the database that they change, expected both; "
                "restore 'snapshots', or begin with an empty store"
            )
        if newest is None and not self._begins:
            raise UnavailableError(
                "--shared-store: empty, expected the store of earlier proxies; this proxy waits until it is mounted, "
                "or another one begins a store (--new-store)"
            )
        return newest

    def _is_behind(self) -> bool:
        newest = self._newest()
        return newest is not None and (not self._knows_snapshot or newest > self.number)

    def _restore(self) -> bool:
        """Replace the database by the newest snapshot, and return whether there is one."""
        number = newest_snapshot(self._store)
        data = None if number is None else self._store.get(snapshot_name(number))
        if number is None or data is None:
            return False
        # Before it replaces a database that this release can read.
        check_schema(schema_of(data), snapshot_name(number))
        for suffix in ("-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                self._path.with_name(self._path.name + suffix).unlink()
        replace(self._path, data)
        self.number = number
        log.info("database restored from the snapshot of transaction %d", number)
        return True

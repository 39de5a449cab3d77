# SPDX-License-Identifier: Apache-2.0
"""Proxies without their processes: the copy of the database, and the right to lead."""

from __future__ import annotations

from pathlib import Path

from serving_proxy.leadership.replica import Replica
from serving_proxy.leadership.shared_store import SharedStore
from serving_proxy.store import Repository


class Proxy:
    """A proxy's copy of the database, and whether it believes that it leads."""

    def __init__(self, store: SharedStore, folder: Path, begins: bool = True) -> None:
        folder.mkdir(exist_ok=True)
        self.store, self.path = store, folder / "proxy.sqlite3"
        self.replica = Replica(store, self.path, begins)
        self.leads = True
        self.lost = False

    def lead(self, term: int) -> Repository:
        """Follow the log to its end, and begin a term."""
        self.replica.catch_up()
        self.replica.lead(term, lambda: self.leads, self.lose)
        return self.repository

    def lose(self) -> None:
        """Note that this proxy has stopped leading."""
        self.lost = True

    @property
    def repository(self) -> Repository:
        """Return the records of its database."""
        return Repository(self.replica.database)

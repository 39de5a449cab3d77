# SPDX-License-Identifier: Apache-2.0
"""Records, jobs, events and hosts as rows; no other module contains SQL."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from serving_proxy.errors import PreconditionError, ProxyError
from serving_proxy.field_faults import first_fault
from serving_proxy.records.models import Model, Note, Version
from serving_proxy.store.database import Database, Writer

MOST_EVENTS = 10_000
MOST_JOBS = 1_000
_PRUNE_EVERY = 100


@dataclass(frozen=True)
class Event:
    """An entry of the event log."""

    id: int
    at: float
    kind: str
    model: str | None
    version: int | None
    message: str
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class JobRow:
    """A row of the table of long operations.

    Attributes
    ----------
    state : str
        `running`, `succeeded`, `failed` or `cancelled`.
    """

    id: int
    kind: str
    model: str
    version: int
    state: str
    error: str
    created: float
    finished: float | None


@dataclass(frozen=True)
class HostRow:
    """A host that the proxy has started.

    Attributes
    ----------
    started_ticks : int
        Start time of the process as the kernel reports it; together with the pid it identifies one process.
    """

    name: str
    pid: int
    started_ticks: int
    command: list[str]
    restarts: int


class Repository:
    """Reads and writes the persistent state."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._since_pruning = 0

    def models(self) -> dict[str, Model]:
        """Read all models with their versions."""
        with self._database.faults():
            connection = self._database.connection
            versions: dict[str, dict[int, Version]] = {}
            for name, number, record in connection.execute(
                "SELECT model, number, record FROM versions ORDER BY model, number"
            ):
                with self.reporting_damage(f"version {name}/{number}"):
                    versions.setdefault(name, {})[number] = Version.model_validate_json(record)
            rows = connection.execute("SELECT name, record FROM models ORDER BY name").fetchall()
        found = {}
        for name, text in rows:
            with self.reporting_damage(f"model {name}"):
                found[name] = Model.model_validate_json(text).change(versions=versions.get(name, {}))
        return found

    def save(
        self,
        models: Iterable[Model],
        notes: Sequence[Note] = (),
        at: float | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> list[Event]:
        """Write models, settings and the notes about them, all or nothing, and return the events."""
        at = time.time() if at is None else at
        with self._database.transaction() as connection:
            for model in models:
                _save_model(connection, model)
            for name, value in (settings or {}).items():
                _save_setting(connection, name, value)
            events = [_add_event(connection, note, at) for note in notes]
            self._prune(connection, len(events))
        return events

    def remove(self, name: str) -> None:
        """Delete a model."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM models WHERE name = ?", (name,))

    def events(self, after: int = 0, model: str | None = None, limit: int = 100, newest: bool = False) -> list[Event]:
        """Read events by rising id: those after an id, or the newest ones."""
        condition, values = "id > ?", [after, *([model] if model is not None else []), limit]
        condition += " AND model = ?" if model is not None else ""
        order = "DESC" if newest else "ASC"
        with self._database.faults():
            rows: list[tuple[Any, ...]] = self._database.connection.execute(
                f"SELECT id, at, kind, model, version, message, data FROM events WHERE {condition} "
                f"ORDER BY id {order} LIMIT ?",
                values,
            ).fetchall()
        with self.reporting_damage("events"):
            found = [
                Event(number, at, kind, of, version, message, json.loads(data))
                for number, at, kind, of, version, message, data in rows
            ]
        return sorted(found, key=lambda event: event.id)

    def last_event(self) -> int:
        """Return the id of the newest event; 0 if there is none."""
        with self._database.faults():
            (found,) = self._database.connection.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()
        return int(found)

    def add_job(self, kind: str, model: str, version: int) -> JobRow:
        """Add a running job."""
        now = time.time()
        with self._database.transaction() as connection:
            cursor = connection.execute(
                "INSERT INTO jobs (kind, model, version, state, created) VALUES (?, ?, ?, 'running', ?)",
                (kind, model, version, now),
            )
            connection.execute(
                "DELETE FROM jobs WHERE state != 'running' AND id <= (SELECT max(id) FROM jobs) - ?", (MOST_JOBS,)
            )
        return JobRow(int(cursor.lastrowid or 0), kind, model, version, "running", "", now, None)

    def finish_job(self, number: int, state: str, error: str = "") -> None:
        """Write the result of a job."""
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE jobs SET state = ?, error = ?, finished = ? WHERE id = ?", (state, error, time.time(), number)
            )

    def jobs(self, running: bool = False, limit: int = MOST_JOBS) -> list[JobRow]:
        """Read jobs, the newest first."""
        condition = "WHERE state = 'running'" if running else ""
        with self._database.faults():
            rows = self._database.connection.execute(
                "SELECT id, kind, model, version, state, error, created, finished FROM jobs "
                f"{condition} ORDER BY id DESC LIMIT ?",
                (limit,),
            ).fetchall()
        return [JobRow(*row) for row in rows]

    def job(self, number: int) -> JobRow | None:
        """Read one job."""
        with self._database.faults():
            row = self._database.connection.execute(
                "SELECT id, kind, model, version, state, error, created, finished FROM jobs WHERE id = ?", (number,)
            ).fetchone()
        return None if row is None else JobRow(*row)

    def save_host(self, host: HostRow) -> None:
        """Remember a host that was started."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO hosts VALUES (?, ?, ?, ?, ?)",
                (host.name, host.pid, host.started_ticks, json.dumps(host.command), host.restarts),
            )

    def hosts(self) -> dict[str, HostRow]:
        """Read the hosts that were started."""
        with self._database.faults():
            rows = self._database.connection.execute(
                "SELECT name, pid, started_ticks, command, restarts FROM hosts"
            ).fetchall()
        with self.reporting_damage("hosts"):
            return {row[0]: HostRow(row[0], row[1], row[2], json.loads(row[3]), row[4]) for row in rows}

    def setting(self, name: str) -> Any:
        """Read the value of a setting; None if there is none."""
        with self._database.faults():
            row = self._database.connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        with self.reporting_damage(f"setting {name}"):
            return None if row is None else json.loads(row[0])

    def set_setting(self, name: str, value: Any) -> None:
        """Write the value of a setting."""
        with self._database.transaction() as connection:
            _save_setting(connection, name, value)

    @contextmanager
    def reporting_damage(self, what: str) -> Iterator[None]:
        """Raise a one-line error if a row is not in this proxy's format: it is damaged, or of a later release."""
        try:
            yield
        except (ValueError, TypeError, RecursionError) as error:
            said = first_fault(error) if isinstance(error, ValidationError) else str(error)
            faults = error.errors() if isinstance(error, ValidationError) else []
            # A later release may also have given a known member a new value.
            unknown = [fault["loc"] for fault in faults if fault["type"] == "extra_forbidden"]
            if unknown:
                place = ".".join(map(str, unknown[0]))
                raise PreconditionError(
                    f"{self._database.path}: {what} has '{place}', which a later release wrote, expected a record of "
                    "this release or an earlier one"
                ) from error
            found = " ".join(said.split())
            path = self._database.path
            raise ProxyError(f"{path}: {what} is damaged, {found}; expected a record of this proxy") from error

    def _prune(self, connection: Writer, added: int) -> None:
        self._since_pruning += added
        if self._since_pruning >= _PRUNE_EVERY:
            self._since_pruning = 0
            connection.execute("DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?", (MOST_EVENTS,))


def _save_setting(connection: Writer, name: str, value: Any) -> None:
    connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, json.dumps(value)))


def _save_model(connection: Writer, model: Model) -> None:
    record = model.model_dump_json(exclude={"versions"}, exclude_defaults=True)
    connection.execute(
        "INSERT INTO models VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET record = excluded.record",
        (model.name, record),
    )
    rows = [
        (model.name, number, version.state.value, version.model_dump_json(exclude_defaults=True))
        for number, version in model.versions.items()
    ]
    connection.executemany(
        "INSERT INTO versions VALUES (?, ?, ?, ?) ON CONFLICT (model, number) DO UPDATE "
        "SET state = excluded.state, record = excluded.record WHERE record != excluded.record",
        rows,
    )
    numbers = json.dumps(list(model.versions))
    connection.execute(
        "DELETE FROM versions WHERE model = ? AND number NOT IN (SELECT value FROM json_each(?))", (model.name, numbers)
    )


def _add_event(connection: Writer, note: Note, at: float) -> Event:
    cursor = connection.execute(
        "INSERT INTO events (at, kind, model, version, message, data) VALUES (?, ?, ?, ?, ?, ?)",
        (at, note.kind, note.model, note.version, note.message, json.dumps(note.data)),
    )
    number = int(cursor.lastrowid or 0)
    return Event(number, at, note.kind, note.model, note.version, note.message, note.data)

# SPDX-License-Identifier: Apache-2.0
"""The models in memory and in the database; both agree, except while the database cannot be written to."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from serving_proxy.errors import ExhaustedError, ProxyError, UnavailableError
from serving_proxy.records.models import Model, Note
from serving_proxy.store import Repository, Reserve
from serving_proxy.store.event_feed import EventFeed

log = logging.getLogger("serving_proxy.control")

# Time between attempts while the disk is full: short enough to continue soon, long enough that the log does not fill
# the disk again.
RETRY_S = 2.0
_PROBE_S = 5.0
_MOST_UNSAVED = 100


class ModelStore:
    """Writes models and events, and notifies the event feed.

    Attributes
    ----------
    models : dict of str to Model
    last_event : int
    fault : str or None
        Why the state directory cannot be written to.
    """

    def __init__(self, state_dir: Path, repository: Repository, feed: EventFeed) -> None:
        self.models: dict[str, Model] = repository.models()
        self.last_event = repository.last_event()
        self.fault: str | None = None
        self._repository = repository
        self._feed = feed
        self._reserve = Reserve(state_dir)
        # Changes that could not be recorded when they were made: in force, but not in the database yet.
        self._unsaved: list[Note] = []
        self._unsaved_models: set[str] = set()
        self._probe_at = 0.0

    @property
    def has_unsaved(self) -> bool:
        """Return whether models are in force that are not in the database yet."""
        return bool(self._unsaved_models)

    def save(
        self, models: Iterable[Model], notes: Sequence[Note] = (), settings: Mapping[str, Any] | None = None
    ) -> None:
        """Write models, events and settings to the database, then to memory.

        Raises
        ------
        ExhaustedError, UnavailableError
            The disk is full or the database is locked: nothing was changed.
        """
        models = list(models)
        events = self._repository.save(models, notes, settings=settings)
        self.models.update((model.name, model) for model in models)
        for event in events:
            self.last_event = event.id
            log.info(event.message, extra={"event": event.kind, "model": event.model, "version": event.version})
        self._feed.publish(events)
        self._feed.changed()

    def save_urgently(self, models: Iterable[Model], notes: Sequence[Note] = ()) -> None:
        """Write models as `save` does; if there is no room, keep them in memory until there is."""
        changed = {name: self.models[name] for name in self._unsaved_models if name in self.models}
        changed |= {model.name: model for model in models}
        unsaved_notes = [*self._unsaved, *notes]
        try:
            try:
                self.save(changed.values(), unsaved_notes)
            except ExhaustedError:
                self._reserve.release()
                self.save(changed.values(), unsaved_notes)
        except (ExhaustedError, UnavailableError) as error:
            for note in notes:
                log.warning("%s; not recorded yet: %s", note.message, error)
            self._unsaved, self._unsaved_models = unsaved_notes[-_MOST_UNSAVED:], set(changed)
            self.models.update(changed)
            self.hold(error)
            self._feed.changed()
        else:
            self._unsaved, self._unsaved_models = [], set()

    def remove(self, name: str) -> None:
        """Remove a model that has no versions left."""
        self._repository.remove(name)
        del self.models[name]
        self._feed.changed()

    def hold(self, error: ProxyError) -> None:
        """Record that the state directory cannot be written to, and log it once."""
        if self.fault is None:
            log.error("%s", error)
        self.fault = str(error)

    def check_room(self, now: float) -> bool:
        """Try to write to the state directory; return whether unsaved models were written.

        Parameters
        ----------
        now : float [s]
            Time of the monotonic clock.
        """
        if now < self._probe_at:
            return False
        self._probe_at = now + (_PROBE_S if self.fault is None else RETRY_S)
        had_unsaved = self.has_unsaved
        try:
            self._reserve.probe()
            if had_unsaved:
                self.save_urgently([])
            elif self.fault is not None:
                # Files may be writable although the database is not.
                self._repository.set_setting("written", time.time())
        except (ExhaustedError, UnavailableError) as error:
            self.hold(error)
            return False
        if not self.has_unsaved:
            if self.fault is not None:
                self.fault = None
                log.info("the state directory can be written to again")
                self._feed.changed()
            self._reserve.renew()
        return had_unsaved

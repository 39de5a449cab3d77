# SPDX-License-Identifier: Apache-2.0
"""Copy the timelines in stores that versions follow, within a second of a new delta."""

from __future__ import annotations

import asyncio
from pathlib import Path

from serving_proxy.artifacts.timelines import TimelineCopy, copied_timeline
from serving_proxy.deploy.control import Control
from serving_proxy.errors import ProxyError

PERIOD_S = 0.5


class Timelines:
    """The copies of all timelines that versions follow; a store that does not answer delays no other."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._copies: dict[Path, TimelineCopy | None] = {}
        self._running: dict[Path, asyncio.Task[None]] = {}
        self._errors: dict[Path, str] = {}

    async def run(self) -> None:
        """Copy new deltas until the task is cancelled."""
        while True:
            with self._control.recording_faults("timelines"):
                self._start()
            await asyncio.sleep(PERIOD_S)

    def _start(self) -> None:
        """Begin a step of each timeline whose last step has ended."""
        followers = self._followers()
        for folder in followers:
            if folder not in self._copies:
                self._copies[folder] = copied_timeline(self._control.remote.timelines, folder)
            copy, task = self._copies[folder], self._running.get(folder)
            if copy is not None and (task is None or task.done()):
                self._running[folder] = asyncio.create_task(self._step(folder, copy, followers[folder]))
        for folder in self._copies.keys() - followers.keys():
            del self._copies[folder]

    async def _step(self, folder: Path, copy: TimelineCopy, follower: tuple[str, int]) -> None:
        """Copy what is new; record once why that is not possible, and that it is possible again."""
        name, number = follower
        with self._control.recording_faults(f"timeline {copy.url}"):
            try:
                await asyncio.to_thread(copy.step)
                error = ""
            except ProxyError as failed:
                error = str(failed)
            # Errors that pass have other numbers each time; only the object and the kind count.
            if (self._errors.get(folder, "") != "") != (error != ""):
                text = f"{error}; the copied deltas stay" if error else f"{copy.url}: is copied again"
                self._control.note("follow", f"{name}/{number}: {text}", name, number)
            self._errors[folder] = error

    def _followers(self) -> dict[Path, tuple[str, int]]:
        """Return the folders that versions follow, each with one of these versions."""
        return {
            Path(version.settings.follow): (name, version.number)
            for name, model in self._control.models.items()
            for version in model.versions.values()
            if version.active and version.settings.follow is not None
        }

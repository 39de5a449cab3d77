# SPDX-License-Identifier: Apache-2.0
"""Remove optimized models that no version uses, tables that no model links to, and old request logs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from pathlib import Path

from serving_proxy.deploy.control import Control
from serving_proxy.deploy.pipeline import DeployPipeline
from serving_proxy.records.states import State
from serving_proxy.request_log.operations import RequestLogs

log = logging.getLogger("serving_proxy.cleaning")

_PERIOD_S = 30.0
_TABLE = ".emb"


class Cleaner:
    """Keeps the state directory from growing without limit."""

    def __init__(self, control: Control, pipeline: DeployPipeline, logs: RequestLogs) -> None:
        self._control = control
        self._pipeline = pipeline
        self._logs = logs

    async def run(self) -> None:
        """Clean periodically until the task is cancelled."""
        while True:
            with self._control.recording_faults("cleaning"):
                await self.clean()
                await self._logs.clean()
            with self._control.recording_faults("copies of models"):
                await self.retain()
            await asyncio.sleep(_PERIOD_S)

    async def clean(self) -> None:
        """Remove unused files; do nothing while a model is being optimized, and let no optimization start meanwhile."""
        if self._pipeline.optimizing.locked():
            return
        async with self._pipeline.optimizing:
            options = self._control.options
            for path in await asyncio.to_thread(_entries, options.artifacts):
                if path not in self._needed():
                    log.info("removes %s", path)
                    await asyncio.to_thread(_remove, path)
            await asyncio.to_thread(_remove_tables, options.tables)

    async def retain(self) -> None:
        """Name what is needed of what was copied from stores; the rest stays until its room is needed."""
        needed = self._served() | self._followed() | self._profiles() | {*self._pipeline.fetched.values()}
        await asyncio.to_thread(self._control.remote.retain, needed)

    def _needed(self) -> set[Path]:
        """Return the artifacts of versions that are not stopped, and their reports."""
        folders = {
            self._pipeline.artifact(name, version)
            for name, model in self._control.models.items()
            for version in model.versions.values()
            if version.optimize is not None and version.state != State.STOPPED
        }
        # The names above contain the deployment time, which is not known for adopted versions.
        folders |= self._served()
        return folders | {folder.with_suffix(".json") for folder in folders}

    def _served(self) -> set[Path]:
        """Return the folders of versions that are not stopped."""
        return {
            Path(version.path)
            for model in self._control.models.values()
            for version in model.versions.values()
            if version.path is not None and version.state != State.STOPPED
        }

    def _followed(self) -> set[Path]:
        """Return the folders of the timelines that versions follow."""
        return {
            Path(version.settings.follow)
            for model in self._control.models.values()
            for version in model.versions.values()
            if version.settings.follow is not None and version.state != State.STOPPED
        }

    def _profiles(self) -> set[Path]:
        """Return the files of the profiles that were given with versions."""
        return {
            Path(version.profile)
            for model in self._control.models.values()
            for version in model.versions.values()
            if version.profile is not None and version.state != State.STOPPED
        }


def _entries(folder: Path) -> list[Path]:
    return list(folder.glob("*/*"))


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        path.parent.rmdir()


def _remove_tables(folder: Path) -> None:
    """Remove files of the table store that have no other link."""
    for path in folder.glob(f"*{_TABLE}"):
        with contextlib.suppress(OSError):
            if path.stat().st_nlink == 1:
                path.unlink()

# SPDX-License-Identifier: Apache-2.0
"""The proxy's operations on request logs: switch them on and off, list them, and make warm-up files from them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

from serving_proxy.deploy.changes import Change
from serving_proxy.deploy.control import Control
from serving_proxy.experiments.traffic import to_percent
from serving_proxy.records.models import Model, Note, RequestLog
from serving_proxy.records.view import View
from serving_proxy.request_log.files import Merged, log_files, merge, remove, remove_excess

LAST = "last"
"""Stands for a warm-up file that is to be made from the newest requests."""
_UNUSED_S = 600.0


class LogFileView(View):
    """A file with logged requests."""

    host: str
    path: str
    began: float
    bytes: int


class RequestLogView(View):
    """The request log of a model; `sample` in percent, null: no requests are logged."""

    sample: float | None
    max_bytes: int
    max_files: int
    bytes: int
    files: list[LogFileView]


class MergedView(View):
    """One file with the newest requests."""

    path: str
    records: int
    bytes: int


class RequestLogs:
    """The operations on request logs."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._folder = control.options.warmups

    def configure(self, name: str, wanted: RequestLog | None) -> None:
        """Switch the log of a model on, change its settings, or switch it off; existing files stay."""
        model = self._control.model(name)
        if wanted == model.request_log:
            return
        share = "none" if wanted is None else f"{to_percent(wanted.sample):g} %"
        data = {} if wanted is None else wanted.model_dump()
        note = Note(kind="log", message=f"{name}: {share} of the requests recorded", model=name, data=data)
        if self._control.commit(Change(model.change(request_log=wanted), (note,))):
            self._control.step()

    async def show(self, name: str) -> RequestLogView:
        """Return the view of a model's log."""
        wanted = self._control.model(name).request_log
        found = await asyncio.to_thread(log_files, self._control.options.state_dir, name)
        shown = wanted or RequestLog(sample=1)
        return RequestLogView(
            sample=None if wanted is None else to_percent(wanted.sample),
            max_bytes=shown.max_bytes,
            max_files=shown.max_files,
            bytes=sum(file.bytes for file in found),
            files=[
                LogFileView(host=file.host, path=str(file.path), began=file.began / 1e6, bytes=file.bytes)
                for file in found
            ],
        )

    async def merge(self, name: str) -> Merged:
        """Merge the newest requests of a model into one file, for a warm-up or for `graph-tools verify`.

        Raises
        ------
        NotFoundError
            There are no logged requests.
        """
        self._control.model(name)
        found = await asyncio.to_thread(log_files, self._control.options.state_dir, name)
        return await asyncio.to_thread(merge, found, self._folder)

    async def delete(self, name: str) -> None:
        """Remove the files of a model."""
        self._control.model(name)
        found = await asyncio.to_thread(log_files, self._control.options.state_dir, name)
        gone = await asyncio.to_thread(remove, found)
        if gone:
            self._control.note("log", f"{name}: {len(gone)} files of the request log deleted", name)

    async def warm_up_file(self, name: str, source: str, number: int | None) -> str:
        """Return the file for `--warmup last`: that of the deployed version if there is one, so that repeating changes
        nothing.
        """
        model = self._control.models.get(name) or Model(name=name)
        for version in model.versions.values():
            file = version.settings.warmup_file
            same = version.active and version.source == source and number in {None, version.number}
            if same and file is not None and Path(file).parent == self._folder:
                return file
        return str((await self.merge(name)).path)

    async def clean(self) -> None:
        """Remove excess files of hosts that are gone, and warm-up files that no version uses."""
        state_dir = self._control.options.state_dir
        used = {
            version.settings.warmup_file
            for model in self._control.models.values()
            for version in model.versions.values()
        }
        for model in list(self._control.models.values()):
            if model.request_log is not None:
                found = await asyncio.to_thread(log_files, state_dir, model.name)
                await asyncio.to_thread(remove_excess, found, model.request_log.max_files)
        await asyncio.to_thread(_remove_unused, self._folder, {path for path in used if path is not None})


def _remove_unused(folder: Path, used: set[str]) -> None:
    for path in folder.glob("*.tfrecord"):
        with contextlib.suppress(OSError):
            # A file that was made just now is about to be used.
            if str(path) not in used and time.time() - path.stat().st_mtime > _UNUSED_S:
                path.unlink()

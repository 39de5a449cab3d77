# SPDX-License-Identifier: Apache-2.0
"""The request log as the proxy has it: switched on and off, listed, and made into warm-up files."""

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
from serving_proxy.request_log.files import Merged, bound, log_files, merge, remove

LAST = "last"
"""The name of a warm-up file that is to be made of the newest requests."""
_UNUSED_S = 600.0


class LogFileView(View):
    """A file with requests."""

    host: str
    path: str
    began: float
    bytes: int


class RequestLogView(View):
    """What hosts write down of a model's requests; `sample` in percent, null: nothing."""

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
    """What operators do with request logs."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._folder = control.options.warmups

    def configure(self, name: str, wanted: RequestLog | None) -> None:
        """Switch the log of a model on, with other settings, or off; files that are there stay."""
        model = self._control.model(name)
        if wanted == model.request_log:
            return
        share = "none" if wanted is None else f"{to_percent(wanted.sample):g} %"
        data = {} if wanted is None else wanted.model_dump()
        note = Note(kind="log", message=f"{name}: {share} of the requests written down", model=name, data=data)
        if self._control.commit(Change(model.change(request_log=wanted), (note,))):
            self._control.step()

    async def show(self, name: str) -> RequestLogView:
        """Show the log of a model."""
        wanted = self._control.model(name).request_log
        found = await asyncio.to_thread(log_files, self._control.options.state_dir, name)
        shown = wanted or RequestLog(sample=1)
        return RequestLogView(
            sample=None if wanted is None else to_percent(wanted.sample),
            max_bytes=shown.max_bytes,
            max_files=shown.max_files,
            bytes=sum(one.bytes for one in found),
            files=[
                LogFileView(host=one.host, path=str(one.path), began=one.began / 1e6, bytes=one.bytes) for one in found
            ],
        )

    async def merge(self, name: str) -> Merged:
        """Put the newest requests of a model into one file, which may be deployed with and verified by.

        Raises
        ------
        NotFoundError
            There are none.
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
            self._control.note("log", f"{name}: {len(gone)} files of the request log removed", name)

    async def warm_up_file(self, name: str, source: str, number: int | None) -> str:
        """Return the file for `--warmup last`: that of the deployed version, so that a repetition changes nothing."""
        model = self._control.models.get(name) or Model(name=name)
        for version in model.versions.values():
            file = version.settings.warmup_file
            same = version.active and version.source == source and number in {None, version.number}
            if same and file is not None and Path(file).parent == self._folder:
                return file
        return str((await self.merge(name)).path)

    async def clean(self) -> None:
        """Remove what hosts that are gone have too much of, and warm-up files that no version names."""
        state_dir = self._control.options.state_dir
        used = {
            version.settings.warmup_file
            for model in self._control.models.values()
            for version in model.versions.values()
        }
        for model in list(self._control.models.values()):
            if model.request_log is not None:
                found = await asyncio.to_thread(log_files, state_dir, model.name)
                await asyncio.to_thread(bound, found, model.request_log.max_files)
        await asyncio.to_thread(_remove_unused, self._folder, {one for one in used if one is not None})


def _remove_unused(folder: Path, used: set[str]) -> None:
    for path in folder.glob("*.tfrecord"):
        with contextlib.suppress(OSError):
            # One that was made just now is about to be named.
            if str(path) not in used and time.time() - path.stat().st_mtime > _UNUSED_S:
                path.unlink()

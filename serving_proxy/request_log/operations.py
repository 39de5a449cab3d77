# SPDX-License-Identifier: Apache-2.0
"""The proxy's operations on request logs: switch them on and off, list them, and make warm-up files from them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from serving_proxy.artifacts.warmups import GIVEN
from serving_proxy.deploy.changes import Change
from serving_proxy.deploy.control import Control
from serving_proxy.experiments.traffic import to_percent
from serving_proxy.records.machine_logs import LogAnswer
from serving_proxy.records.models import Model, Note, RequestLog
from serving_proxy.records.view import View
from serving_proxy.request_log.files import (
    MOST_BYTES,
    MOST_RECORDS,
    Merged,
    log_files,
    newest,
    remove,
    remove_excess,
    write_merged,
)
from serving_proxy.request_log.machines import MachineLogs, Missing, error_for, newest_of_machines, reasons

LAST = "last"
"""Stands for a warm-up file that is to be made from the newest requests."""
_UNUSED_S = 600.0


class LogFileView(View):
    """A file with logged requests; with agents, its host is `MACHINE/HOST`, and its path is one of that machine."""

    host: str
    path: str
    began: float
    bytes: int


class RequestLogView(View):
    """The request log of a model; `sample` in percent, null: no requests are logged.

    `missing`: why the files of machines are not known.
    """

    sample: float | None
    max_bytes: int
    max_files: int
    bytes: int
    files: list[LogFileView]
    missing: dict[str, str]


class MergedView(View):
    """One file with the newest requests, on the proxy's machine; `missing`: why those of machines are not in it."""

    path: str
    records: int
    bytes: int
    missing: dict[str, str]


@dataclass(frozen=True)
class MergedLogs:
    """A merged file, and why the requests of machines are not in it."""

    merged: Merged
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Return the file."""
        return self.merged.path

    @property
    def view(self) -> MergedView:
        """Return the view."""
        merged = self.merged
        return MergedView(path=str(merged.path), records=merged.records, bytes=merged.bytes, missing=dict(self.missing))


class RequestLogs:
    """The operations on request logs.

    Parameters
    ----------
    control : Control
    machines : MachineLogs, optional
        The logs of other machines.
    """

    def __init__(self, control: Control, machines: MachineLogs | None = None) -> None:
        self._control = control
        self._machines = machines
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
        """Return the view of a model's log; machines that do not answer are named in it."""
        wanted = self._control.model(name).request_log
        found = await asyncio.to_thread(log_files, self._control.options.state_dir, name)
        views = [
            LogFileView(host=file.host, path=str(file.path), began=file.began / 1e6, bytes=file.bytes) for file in found
        ]
        answers: dict[str, LogAnswer] = {}
        missing: Missing = {}
        if self._machines is not None:
            answers, missing = await self._machines.files(name)
        for machine, answer in answers.items():
            views += [
                LogFileView(host=f"{machine}/{file.host}", path=file.path, began=file.began / 1e6, bytes=file.bytes)
                for file in answer.files
            ]
        shown = wanted or RequestLog(sample=1)
        return RequestLogView(
            sample=None if wanted is None else to_percent(wanted.sample),
            max_bytes=shown.max_bytes,
            max_files=shown.max_files,
            bytes=sum(view.bytes for view in views),
            files=views,
            missing=reasons(missing),
        )

    async def merge(self, name: str) -> MergedLogs:
        """Merge the newest requests of a model into one file, for a warm-up or for `graph-tools verify`.

        Raises
        ------
        NotFoundError
            There are no logged requests.
        UnavailableError, PreconditionError, LateError
            There are none because machines are away, or their agents are of an earlier release or do not answer.
        """
        self._control.model(name)
        found = await asyncio.to_thread(log_files, self._control.options.state_dir, name)
        damaged: list[Path] = []
        records = await asyncio.to_thread(newest, found, MOST_RECORDS, MOST_BYTES, damaged)
        missing: Missing = {}
        if self._machines is not None:
            records, missing = await newest_of_machines(self._machines, name, records)
            error = error_for(missing)
            if not records and error is not None:
                raise error
        return MergedLogs(await asyncio.to_thread(write_merged, records, self._folder, damaged), reasons(missing))

    async def delete(self, name: str) -> None:
        """Remove the files of a model.

        Raises
        ------
        UnavailableError, PreconditionError, LateError
            A machine is away, or its agent is of an earlier release or does not answer: its files stay.
        """
        self._control.model(name)
        found = await asyncio.to_thread(log_files, self._control.options.state_dir, name)
        gone = len(await asyncio.to_thread(remove, found))
        answers: dict[str, LogAnswer] = {}
        missing: Missing = {}
        if self._machines is not None:
            answers, missing = await self._machines.delete(name)
        gone += sum(answer.removed for answer in answers.values())
        if gone:
            self._control.note("log", f"{name}: {gone} files of the request log deleted", name)
        error = error_for(missing)
        if error is not None:
            raise error

    async def warm_up_file(self, name: str, source: str, number: int | None) -> tuple[str, Mapping[str, str]]:
        """Return the file for `--warmup last`, and why the requests of machines are not in it.

        It is that of the deployed version if there is one, so that repeating changes nothing.
        """
        model = self._control.models.get(name) or Model(name=name)
        for version in model.versions.values():
            file = version.settings.warmup_file
            same = version.active and version.source == source and number in {None, version.number}
            if same and file is not None and Path(file).parent == self._folder:
                return file, {}
        made = await self.merge(name)
        return str(made.path), made.missing

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
    for path in [*folder.glob("*.tfrecord"), *(folder / GIVEN).glob("[!.]*")]:
        with contextlib.suppress(OSError):
            # A file that was made just now is about to be used.
            if str(path) not in used and time.time() - path.stat().st_mtime > _UNUSED_S:
                path.unlink()

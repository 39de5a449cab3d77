# SPDX-License-Identifier: Apache-2.0
"""Answer the proxy's questions about the request logs of this machine's hosts."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from serving_proxy.agent.link import Link
from serving_proxy.errors import LateError, PreconditionError, ProxyError, UnavailableError
from serving_proxy.records.machine_logs import DELETE, LIST, NEWEST, PART_BYTES, LogAnswer, LogAsk, LoggedFile
from serving_proxy.request_log.files import log_files, newest, remove, remove_excess

log = logging.getLogger("serving_proxy.agent")

_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.2, 2.0

_T = TypeVar("_T")


class LogAnswers:
    """Answers each question once, beside everything else, for as long as the proxy asks it.

    Parameters
    ----------
    state_dir : Path
    link : Link
    """

    def __init__(self, state_dir: Path, link: Link) -> None:
        self._state_dir = state_dir
        self._link = link
        self._running: dict[str, asyncio.Task[None]] = {}

    def take(self, asked: Collection[LogAsk]) -> None:
        """Begin to answer new questions, and stop to answer those that are not asked any more."""
        wanted = {ask.id for ask in asked}
        for gone in self._running.keys() - wanted:
            self._running.pop(gone).cancel()
        for ask in asked:
            if ask.id not in self._running:
                self._running[ask.id] = asyncio.create_task(self._answer(ask))

    def remove_excess(self, desired: Mapping[str, Any]) -> None:
        """Remove files of hosts that no longer run, beyond what a running host would keep."""
        for name, model in desired.get("models", {}).items():
            most = (model.get("request_log") or {}).get("max_files")
            if isinstance(most, int):
                remove_excess(log_files(self._state_dir, name), most)

    async def _answer(self, ask: LogAsk) -> None:
        try:
            told, records = await asyncio.to_thread(self._found, ask)
            await self._until_heard(partial(self._link.answer, ask.id, told))
            received = 0
            while received < told.bytes:
                part = part_of(records, received)
                received = await self._until_heard(partial(self._link.send, ask.id, received, part))
        except ProxyError as error:
            # The proxy has ended the question, or another one leads.
            log.info("request log: %s", error)
        except Exception:
            # A bug, or a disk that fails: the proxy gives this machine up.
            log.exception("request log")

    async def _until_heard(self, send: Callable[[], Awaitable[_T]]) -> _T:
        """Send something again until the proxy has answered; the proxy ends the question if that takes long."""
        delay = _FIRST_RETRY_S
        while True:
            with suppress(UnavailableError, LateError):
                return await send()
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LONGEST_RETRY_S)

    def _found(self, ask: LogAsk) -> tuple[LogAnswer, list[bytes]]:
        """Return the answer, and the records that are sent after it."""
        files = log_files(self._state_dir, ask.model)
        if ask.what == LIST:
            return LogAnswer(
                files=tuple(
                    LoggedFile(host=file.host, path=str(file.path), began=file.began, bytes=file.bytes)
                    for file in files
                )
            ), []
        if ask.what == DELETE:
            return LogAnswer(removed=len(remove(files))), []
        if ask.what != NEWEST:
            said = f"'{ask.what[:40]}': unknown, expected an agent of a later release"
            return LogAnswer(status=PreconditionError.status, error=said), []
        records = newest(files, ask.records, ask.bytes, [])
        if not records:
            return LogAnswer(status="NOT_FOUND", error="no request in its log"), []
        sha256 = hashlib.sha256()
        for record in records:
            sha256.update(record)
        size = sum(map(len, records))
        return LogAnswer(records=len(records), bytes=size, sha256=sha256.hexdigest()), records


def part_of(records: Iterable[bytes], start: int, most_bytes: int = PART_BYTES) -> bytes:
    """Return bytes of records that follow one another, from a position on; they are never all copied at once."""
    part = bytearray()
    for record in records:
        part += memoryview(record)[start : start + most_bytes - len(part)]
        start = max(0, start - len(record))
        if len(part) == most_bytes:
            break
    return bytes(part)

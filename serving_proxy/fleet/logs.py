# SPDX-License-Identifier: Apache-2.0
"""The request logs of machines: ask agents for them, and receive what they send.

What agents send is bounded: the machines that are asked together share one number of bytes, and one question for
requests is asked at a time. After a break an agent continues with the bytes that the proxy does not have.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from serving_proxy.errors import (
    ExhaustedError,
    InvalidError,
    LateError,
    NotFoundError,
    PreconditionError,
    ProxyError,
    UnavailableError,
    from_status,
)
from serving_proxy.fleet.machines import Machine, Machines
from serving_proxy.records.machine_logs import DELETE, LIST, LOGS_FEATURE, NEWEST, LogAnswer, LogAsk
from serving_proxy.system.files import private_folder

# A machine from which nothing has come for this time, or three reports, is not waited for any longer.
_PATIENCE_S = 15.0
_LONGEST_S = 120.0
_LOOK_S = 0.25
# A machine may send so much, however many there are; an agent has what it sends in memory.
_LEAST_BYTES, _MOST_BYTES = 1024 * 1024, 64 * 1024 * 1024


@dataclass
class _Question:
    machine: str
    ask: LogAsk
    file: Path
    heard: float
    answered: asyncio.Future[LogAnswer]
    told: LogAnswer | None = None
    received: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class MachineLogs:
    """Questions to the agents of machines; other operations of the proxy do not wait for them.

    Parameters
    ----------
    machines : Machines
    folder : Path
        What machines send is put here for as long as it is used. Removed at once: a proxy that was killed may have left
        requests of clients there.
    clock : callable
        Returns seconds.
    """

    def __init__(self, machines: Machines, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._machines = machines
        self._folder = folder
        self._clock = clock
        self._open: dict[str, _Question] = {}
        self._one_at_a_time = asyncio.Lock()
        shutil.rmtree(folder, ignore_errors=True)

    async def files(self, model: str) -> tuple[dict[str, LogAnswer], dict[str, ProxyError]]:
        """Return the files of a model by machine, and why machines have not answered."""
        return await self._ask(LIST, model)

    async def delete(self, model: str) -> tuple[dict[str, LogAnswer], dict[str, ProxyError]]:
        """Remove the files of a model; return how many there were by machine, and why machines have not answered."""
        return await self._ask(DELETE, model)

    @contextmanager
    def _receiving(self) -> Iterator[None]:
        """Keep a folder for what is received while the block runs."""
        private_folder(self._folder, "request logs")
        try:
            yield
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def newest(
        self, model: str, records: int, most_bytes: int, use: Callable[[dict[str, Path]], None]
    ) -> dict[str, ProxyError]:
        """Fetch the newest requests of a model, and pass a file of each machine that has some to a function.

        Parameters
        ----------
        model : str
        records, most_bytes : int
            Most requests of a machine, and most bytes of all machines together.
        use : callable
            Called on another thread; the files are removed after that.

        Returns
        -------
        dict
            Why machines have sent nothing, by name; those without requests are left out.
        """
        async with self._one_at_a_time:
            with self._receiving():
                share = most_bytes // max(1, len(self._machines.names))
                share = min(max(share, _LEAST_BYTES), _MOST_BYTES)
                questions: dict[str, _Question] = {}
                _, missing = await self._ask(NEWEST, model, records, share, questions)
                sent = {
                    name: asked.file
                    for name, asked in questions.items()
                    if name not in missing and asked.told is not None and asked.told.bytes
                }
                missing = {name: why for name, why in missing.items() if not isinstance(why, NotFoundError)}
                await asyncio.to_thread(use, sent)
                return missing

    def questions_for(self, machine: str) -> tuple[LogAsk, ...]:
        """Return what the agent of a machine is asked at the moment."""
        # An agent that was started again is not asked for what has arrived.
        return tuple(
            found.ask for found in self._open.values() if found.machine == machine and not found.answered.done()
        )

    async def answer(self, machine: str, number: str, told: LogAnswer) -> None:
        """Accept the answer to a question; a second answer, once all of the first has arrived, changes nothing.

        Raises
        ------
        NotFoundError
            The question is not asked any more.
        InvalidError
            The machine wants to send more than it was asked for.
        """
        found = self._find(machine, number)
        found.heard = self._clock()
        if told.bytes > found.ask.bytes or told.records > found.ask.records:
            raise InvalidError(
                f"machine '{machine}': {told.records} requests of {told.bytes} bytes, expected at most "
                f"{found.ask.records} of {found.ask.bytes}"
            )
        async with found.lock:
            if found.answered.done():
                return
            if found.told is not None and found.told.sha256 != told.sha256:
                # An agent that was started again has read a newer log.
                found.file.unlink(missing_ok=True)
                found.received = 0
            found.told = told
            if not told.bytes or told.status:
                found.answered.set_result(told)

    def check(self, machine: str, number: str) -> None:
        """Raise NotFoundError if the machine is not asked this question any more."""
        self._find(machine, number)

    async def receive(self, machine: str, number: str, start: int, data: bytes) -> int:
        """Accept a part of what a machine sends, and return how many bytes are there.

        Parameters
        ----------
        machine, number : str
        start : int
            Where the part begins; another part than the next one is ignored.
        data : bytes

        Raises
        ------
        NotFoundError, InvalidError
            As for `answer`; or they are more bytes than were announced.
        ExhaustedError
            The disk is full.
        """
        found = self._find(machine, number)
        async with found.lock:
            told = found.told
            if told is None:
                raise InvalidError(f"machine '{machine}': bytes without an answer, expected the answer first")
            found.heard = self._clock()
            if start == found.received and data:
                if start + len(data) > told.bytes:
                    raise InvalidError(f"machine '{machine}': more than {told.bytes} bytes, expected those announced")
                await asyncio.to_thread(_write, found.file, start, data)
                found.received += len(data)
            if found.received == told.bytes and not found.answered.done():
                sha256 = await asyncio.to_thread(_sha256_of, found.file)
                if sha256 != told.sha256:
                    said = f"requests with SHA-256 {sha256}, expected {told.sha256} as it was announced"
                    told = LogAnswer(status=InvalidError.status, error=said)
                if not found.answered.done():
                    found.answered.set_result(told)
            return found.received

    def _find(self, machine: str, number: str) -> _Question:
        found = self._open.get(number)
        if found is None or found.machine != machine:
            raise NotFoundError(f"question '{number[:40]}': not asked, expected one of the last report's answer")
        return found

    async def _ask(
        self, what: str, model: str, records: int = 0, most_bytes: int = 0, kept: dict[str, _Question] | None = None
    ) -> tuple[dict[str, LogAnswer], dict[str, ProxyError]]:
        """Ask all machines at once; return the answers and the errors by machine, and the questions in `kept`."""
        asked, missing = {}, {}
        for machine in self._machines.all():
            reason = self._refusal(machine)
            if reason is not None:
                missing[machine.name] = reason
                continue
            ask = LogAsk(id=secrets.token_hex(16), what=what, model=model, records=records, bytes=most_bytes)
            answered: asyncio.Future[LogAnswer] = asyncio.get_running_loop().create_future()
            asked[machine.name] = _Question(machine.name, ask, self._folder / ask.id, self._clock(), answered)
        self._open |= {question.ask.id: question for question in asked.values()}
        try:
            found = await asyncio.gather(*map(self._answer_of, asked.values()))
        finally:
            for question in asked.values():
                del self._open[question.ask.id]
        if kept is not None:
            kept |= asked
        answers = {}
        for name, answer in zip(asked, found, strict=True):
            if isinstance(answer, ProxyError):
                missing[name] = answer
            else:
                answers[name] = answer
        return answers, dict(sorted(missing.items()))

    async def _answer_of(self, question: _Question) -> LogAnswer | ProxyError:
        """Wait for an answer and all of its bytes."""
        end = self._clock() + _LONGEST_S
        while True:
            await asyncio.wait([question.answered], timeout=_LOOK_S)
            if question.answered.done():
                told = question.answered.result()
                return from_status(told.status, f"machine '{question.machine}': {told.error}") if told.status else told
            now = self._clock()
            machine = self._machines.find(question.machine)
            if machine is None:
                return UnavailableError(f"machine '{question.machine}': forgotten, expected its agent to report")
            reason = self._refusal(machine)
            if reason is not None:
                return reason
            # An agent hears of a question by the answer to its next report.
            patience = max(_PATIENCE_S, 3 * self._machines.report_period)
            if now - question.heard > patience or now > end:
                return LateError(
                    f"machine '{question.machine}': {question.received} bytes of its request log after "
                    f"{now - end + _LONGEST_S:.0f} s, expected all of them"
                )

    def _refusal(self, machine: Machine) -> ProxyError | None:
        """Return why a machine cannot be asked."""
        away = self._machines.away_for(machine)
        if machine.report is None or away is not None:
            return UnavailableError(f"machine '{machine.name}': away, expected its agent to report")
        if LOGS_FEATURE not in machine.report.features:
            return PreconditionError(
                f"machine '{machine.name}': its agent (release {machine.report.version}) lacks {LOGS_FEATURE}, "
                "expected one of a release that has it"
            )
        return None


def _write(file: Path, start: int, data: bytes) -> None:
    try:
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            left, place = memoryview(data), start
            while left:
                count = os.pwrite(opened, left, place)
                left, place = left[count:], place + count
        finally:
            os.close(opened)
    except OSError as error:
        raise ExhaustedError(f"{file}: {error.strerror}, expected room for {len(data)} bytes") from error


def _sha256_of(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise NotFoundError(f"{file}: {error.strerror}, expected a question that is still asked") from error

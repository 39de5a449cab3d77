# SPDX-License-Identifier: Apache-2.0
"""Run requests in the library: on this thread if they are known to be short, else through its queue."""

from __future__ import annotations

from typing import Any

from processor import AbortedError, Answer, Host
from serving_proxy.host.call import Call
from serving_proxy.host.inline_execution import Kind, RequestDurations, kind_of
from serving_proxy.host.loop_load import LoopLoad


class Engine:
    """Runs calls. For the thread of one event loop."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._durations = RequestDurations()
        self._load = LoopLoad()
        self._waiting = 0

    def answer_now(self, call: Call, kind: Kind) -> Answer | None:
        """Run a call that is known to be short; return None if `answer_later` must be used.

        Raises
        ------
        ProcessorError
            With the attribute `answer`.
        """
        # If other requests use threads or sessions, this one would wait for them and block the event loop.
        # If the event loop is saturated, other threads should do what they can.
        if self._waiting or self._load.is_saturated() or not self._durations.is_short(kind):
            return None
        if call.asks_for_epoch:
            return None
        try:
            answer = self.host.process(call.operation.protocol, call.data, **_options(call), only_if_bounded=True)
        except AbortedError as error:
            if error.answer is not None:
                raise
            # Its graph has loops: earlier calls may have been short, or of another version.
            self._durations.refuse(kind)
            return None
        self._durations.learn(kind, answer, inline=True)
        return answer

    async def answer_later(self, call: Call, kind: Kind) -> Answer:
        """Run a call without blocking the event loop; cancelling the task cancels the call, even while it runs.

        Raises
        ------
        ProcessorError
            With the attribute `answer`.
        """
        # While it waits for an epoch, it uses neither a thread nor a session.
        uses = not call.asks_for_epoch
        self._waiting += uses
        try:
            answer = await self.host.aprocess(call.operation.protocol, call.data, **_options(call))
        finally:
            self._waiting -= uses
        self._durations.learn(kind, answer, inline=False)
        return answer

    def close(self) -> None:
        """Send what was held back; this class holds nothing back."""

    async def answer(self, call: Call) -> Answer:
        """Run a call in the way that suits it."""
        kind = kind_of(call)
        answer = self.answer_now(call, kind)
        return await self.answer_later(call, kind) if answer is None else answer


def _options(call: Call) -> dict[str, Any]:
    return {
        "method": call.operation.method,
        "model_name": call.model,
        "model_version": call.version,
        "version_label": call.label,
        "metadata": call.metadata,
        "deadline": call.deadline,
        "priority": call.priority,
    }

# SPDX-License-Identifier: Apache-2.0
"""Run clients on threads as long as a `with` statement lasts."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["ClientThreads"]


class ClientThreads(ABC):
    """Run `_run(number)` on each of `count` threads until the statement ends."""

    def __init__(self, count: int) -> None:
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(count)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    @abstractmethod
    def _run(self, number: int) -> None:
        """Send requests until `_ended` is set."""

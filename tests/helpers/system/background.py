# SPDX-License-Identifier: Apache-2.0
"""Run functions in threads beside a test."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self


class Background:
    """Run each function in a thread while the block runs; a function ends soon after the event that it gets is set."""

    def __init__(self, *functions: Callable[[threading.Event], object]) -> None:
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=function, args=(self._ended,)) for function in functions]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

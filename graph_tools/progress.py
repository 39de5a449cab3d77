# SPDX-License-Identifier: Apache-2.0
"""Report the progress of long operations, independently of a terminal."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives the progress of a cut or a verification."""

    def begin(self, text: str, total: int | None = None, unit: str = "") -> None:
        """End the previous step and begin another of `total` units; None if the length is unknown."""
        ...

    def advance(self, count: int) -> None:
        """Report that `count` more units are done."""
        ...


class Silent:
    """Reports nothing."""

    def begin(self, text: str, total: int | None = None, unit: str = "") -> None: ...
    def advance(self, count: int) -> None: ...

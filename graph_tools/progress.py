# SPDX-License-Identifier: Apache-2.0
"""How long operations say how far they are, without knowing a terminal."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Whoever wants to know how far a cut or a verification is."""

    def begin(self, text: str, total: int | None = None, unit: str = "") -> None:
        """End the step before and begin another, of `total` units; None: of unknown length."""
        ...

    def advance(self, count: int) -> None:
        """Say that `count` more units are done."""
        ...


class Silent:
    """Tells nobody."""

    def begin(self, text: str, total: int | None = None, unit: str = "") -> None: ...
    def advance(self, count: int) -> None: ...

# SPDX-License-Identifier: Apache-2.0
"""Define what the cases of live models share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Setup"]


@dataclass(frozen=True)
class Setup:
    """Contain the programs and the size of a run.

    Attributes
    ----------
    program : Path
        `bench_live`.
    library : Path
        libprocessor.so.
    cache : Path
        Folder of the models.
    quick : bool
        Whether to run the same code with tiny sizes.
    seed : int, optional
        Of random moments and places; by default a new one.
    tick : callable
        Called with the progress, as text.
    """

    program: Path
    library: Path
    cache: Path
    quick: bool = False
    seed: int | None = None
    tick: Callable[[str], None] = lambda text: None

    def size(self, full: int, quick: int) -> int:
        """Return the size for this run."""
        return quick if self.quick else full

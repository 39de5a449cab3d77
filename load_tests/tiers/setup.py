# SPDX-License-Identifier: Apache-2.0
"""What the cases of `bench_tiers` share: how much they measure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Setup"]


@dataclass(frozen=True)
class Setup:
    """How much a case measures.

    Parameters
    ----------
    folder : Path
        Folder for tables, on the device that is measured; they are deleted.
    quick : bool
        Tiny sizes: the figures are no measurement.
    """

    folder: Path
    quick: bool

    @property
    def served_rows(self) -> int:
        """Number of rows of the served table: 8 GB with 64 numbers each."""
        return 50_000 if self.quick else 31_250_000

    @property
    def early_rows(self) -> int:
        """Number of rows of the table of early reads: 1 GB, so that making it takes a minute."""
        return 50_000 if self.quick else 4_000_000

    @property
    def early_ids(self) -> int:
        """Number of rows of 32 ids of a round of early reads."""
        return 256 if self.quick else 16_384

    @property
    def early_fills(self) -> int:
        """Number of rounds of 2 million ids that fill the cache of early reads."""
        return 1 if self.quick else 12

    @property
    def resident_rows(self) -> int:
        """Number of rows of the resident table: 2.3 GB, and its index 160 MB."""
        return 50_000 if self.quick else 9_000_000

    @property
    def resident_requests(self) -> int:
        """Number of requests of a round to the resident table."""
        return 20 if self.quick else 500

    @property
    def requests(self) -> int:
        """Number of requests of a round."""
        return 20 if self.quick else 1_000

    @property
    def peer_requests(self) -> int:
        """Number of requests of a round with peers that have as little memory."""
        return 20 if self.quick else 200

    @property
    def fill_seconds(self) -> float:
        """How long the cache of a peer may be filled with the most frequent rows [s]."""
        return 1.0 if self.quick else 100.0

    @property
    def rounds(self) -> int:
        return 2 if self.quick else 5

    @property
    def seconds(self) -> float:
        """How long the device is measured in a round [s]."""
        return 0.2 if self.quick else 3.0

    @property
    def warm_up_seconds(self) -> float:
        """How long a cache may take to become warm [s]."""
        return 1.0 if self.quick else 120.0

# SPDX-License-Identifier: Apache-2.0
"""Latencies counted in buckets: sums, differences, percentiles, and the number that exceeded a limit with certainty."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest


@dataclass(frozen=True)
class Histogram:
    """Counts by latency.

    Attributes
    ----------
    bounds : tuple of float [us]
        Increasing; bucket i counts latencies above `bounds[i - 1]` and up to `bounds[i]`.
    counts : tuple of int
        At most one more than bounds; missing counts are 0.
    """

    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """Return the total count."""
        return sum(self.counts)

    def __add__(self, other: Histogram) -> Histogram:
        """Add two histograms; if their bounds differ, as those of two releases of hosts may, return the one with more
        counts.
        """
        if not other.counts or not self.counts:
            return other if other.counts else self
        if self.bounds != other.bounds:
            return max(self, other, key=lambda histogram: histogram.count)
        return Histogram(self.bounds, _add_counts(self.counts, other.counts, 1))

    def __sub__(self, earlier: Histogram) -> Histogram:
        """Return the counts since the earlier ones; all counts if the two cannot be compared."""
        if not earlier.counts or self.bounds != earlier.bounds:
            return self
        return Histogram(self.bounds, tuple(max(0, count) for count in _add_counts(self.counts, earlier.counts, -1)))

    def quantile(self, fraction: float) -> float | None:
        """Return the latency [us] that this fraction does not exceed, interpolated linearly in a bucket; None if it is
        empty.
        """
        total = self.count
        if not total:
            return None
        wanted, seen = fraction * total, 0
        for index, count in enumerate(self.counts):
            if count and seen + count >= wanted:
                low = self.bounds[index - 1] if index else 0.0
                high = self.bounds[index] if index < len(self.bounds) else low
                return low + (high - low) * max(0.0, (wanted - seen) / count)
            seen += count
        return self.bounds[-1] if self.bounds else None

    def above(self, limit: float) -> int:
        """Count latencies that certainly exceeded `limit` [us]: the bucket that contains the limit is left out."""
        first = bisect_left(self.bounds, limit) + 1
        return sum(self.counts[first:])


def _add_counts(counts: Sequence[int], others: Sequence[int], sign: int) -> tuple[int, ...]:
    return tuple(count + sign * other_count for count, other_count in zip_longest(counts, others, fillvalue=0))

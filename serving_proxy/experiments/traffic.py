# SPDX-License-Identifier: Apache-2.0
"""Assign buckets to weights, so that no key changes its version without need.

A layer has 10,000 buckets; a request's bucket depends on its routing key only. An arm that grows keeps its buckets and
adds free ones; an arm that shrinks frees its highest buckets. So a ramp only ever moves keys from the baseline to the
variant, and an experiment never moves keys of another. A version may have several arms if the buckets behind its first
one were taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from serving_proxy.errors import ExhaustedError, InvalidError
from serving_proxy.records.models import BucketRange

BUCKETS = 10_000


def to_weight(percent: float) -> int:
    """Convert percent to hundredths of a percent.

    Raises
    ------
    InvalidError
        The value is not between 0 and 100, or is not a multiple of 0.01.
    """
    if not 0 <= percent <= 100:
        raise InvalidError(f"weight: {percent:g} %, expected 0 to 100 %")
    weight = round(percent * 100)
    if not math.isclose(weight, percent * 100, abs_tol=1e-6):
        raise InvalidError(f"weight: {percent:g} %, expected at most two decimals")
    return weight


def to_percent(weight: int) -> float:
    """Convert hundredths of a percent to percent."""
    return weight / 100


def assign_buckets(
    weights: Mapping[int, int], arms: Sequence[BucketRange] = (), taken: Iterable[BucketRange] = ()
) -> tuple[BucketRange, ...]:
    """Assign each version its number of buckets.

    Parameters
    ----------
    weights : mapping of version to int [buckets]
        Versions that are not named, or have 0, lose their arms.
    arms : sequence of BucketRange
        The versions' present arms.
    taken : iterable of BucketRange
        Arms of other models of the layer.

    Returns
    -------
    tuple of BucketRange
        By offset; none is adjacent to another of the same version.

    Raises
    ------
    ExhaustedError
        The layer has not enough free buckets.
    """
    left = dict(weights)
    assigned: list[BucketRange] = []
    for arm in sorted(arms, key=_offset):
        kept = min(arm.weight, left.get(arm.version, 0))
        if kept:
            assigned.append(arm.model_copy(update={"weight": kept}))
            left[arm.version] -= kept
    gaps = _gaps([*assigned, *taken])
    free = sum(end - start for start, end in gaps)
    if sum(left.values()) > free:
        found, needed = to_percent(free + sum(arm.weight for arm in assigned)), to_percent(sum(weights.values()))
        raise ExhaustedError(f"layer: {found:g} % of the buckets are free, expected {needed:g} %")
    for version, missing in sorted(left.items()):
        while missing:
            start, end = gaps.pop(0)
            size = min(missing, end - start)
            assigned.append(BucketRange(version=version, offset=start, weight=size))
            missing -= size
            if start + size < end:
                gaps.insert(0, (start + size, end))
    return _merge(assigned)


def overlapping(arms: Iterable[BucketRange]) -> bool:
    """Return whether two arms share a bucket."""
    return any(arm.end > following.offset for arm, following in pairwise(sorted(arms, key=_offset)))


def _offset(arm: BucketRange) -> int:
    return arm.offset


def _gaps(arms: Iterable[BucketRange]) -> list[tuple[int, int]]:
    """Return the buckets without an arm, as [start, end), by increasing start."""
    found, place = [], 0
    for arm in sorted(arms, key=_offset):
        if arm.offset > place:
            found.append((place, arm.offset))
        place = max(place, arm.end)
    return [*found, (place, BUCKETS)] if place < BUCKETS else found


def _merge(arms: Iterable[BucketRange]) -> tuple[BucketRange, ...]:
    merged: list[BucketRange] = []
    for arm in sorted(arms, key=_offset):
        if merged and merged[-1].version == arm.version and merged[-1].end == arm.offset:
            merged[-1] = merged[-1].model_copy(update={"weight": merged[-1].weight + arm.weight})
        else:
            merged.append(arm)
    return tuple(merged)

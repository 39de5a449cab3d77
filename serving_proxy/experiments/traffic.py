# SPDX-License-Identifier: Apache-2.0
"""Weights to buckets, so that nobody changes version without need.

A layer has 10,000 buckets; a request's bucket depends on its routing key alone. An arm that grows keeps its buckets and
takes free ones; one that shrinks gives its highest away. So a ramp only ever moves keys from the baseline to the
variant, and an experiment never moves keys of another. A version may have several arms where what lay behind its
first one was taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, pairwise

from serving_proxy.errors import ExhaustedError, InvalidError
from serving_proxy.lifecycle.records import Arm

BUCKETS = 10_000


def to_weight(percent: float) -> int:
    """Convert percent to hundredths of a percent.

    Raises
    ------
    InvalidError
        It is not between 0 and 100, or finer than that.
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


def assign(weights: Mapping[int, int], arms: Sequence[Arm] = (), taken: Iterable[Arm] = ()) -> tuple[Arm, ...]:
    """Give every version its number of buckets.

    Parameters
    ----------
    weights : mapping of version to int [buckets]
        Those that are not named, or have 0, lose their arms.
    arms : sequence of Arm
        What the versions have now.
    taken : iterable of Arm
        What other models of the layer have.

    Returns
    -------
    tuple of Arm
        By offset; none touches another of the same version.

    Raises
    ------
    ExhaustedError
        The layer has not enough free buckets.
    """
    owner: dict[int, int] = {}
    left = dict(weights)
    for arm in sorted(arms, key=lambda one: one.offset):
        kept = min(arm.weight, left.get(arm.version, 0))
        owner.update((bucket, arm.version) for bucket in range(arm.offset, arm.offset + kept))
        left[arm.version] = left.get(arm.version, 0) - kept
    others = {bucket for arm in taken for bucket in range(arm.offset, arm.end)}
    free = [bucket for bucket in range(BUCKETS) if bucket not in owner and bucket not in others]
    missing = {version: weight for version, weight in sorted(left.items()) if weight > 0}
    if sum(missing.values()) > len(free):
        found, needed = to_percent(len(free) + len(owner)), to_percent(sum(weights.values()))
        raise ExhaustedError(f"layer: {found:g} % of the buckets are free, expected {needed:g} %")
    buckets = iter(free)
    for version, count in missing.items():
        owner.update((bucket, version) for bucket in islice(buckets, count))
    return _merge(owner)


def overlapping(arms: Iterable[Arm]) -> bool:
    """Say whether two arms share a bucket."""
    ordered = sorted(arms, key=lambda one: one.offset)
    return any(one.end > other.offset for one, other in pairwise(ordered))


def _merge(owner: Mapping[int, int]) -> tuple[Arm, ...]:
    made: list[Arm] = []
    for bucket, version in sorted(owner.items()):
        if made and made[-1].version == version and made[-1].end == bucket:
            made[-1] = Arm(version=version, offset=made[-1].offset, weight=made[-1].weight + 1)
        else:
            made.append(Arm(version=version, offset=bucket, weight=1))
    return tuple(made)

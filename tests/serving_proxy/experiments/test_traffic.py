# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from serving_proxy.errors import ExhaustedError, InvalidError
from serving_proxy.experiments.traffic import BUCKETS, assign_buckets, overlapping, to_percent, to_weight
from serving_proxy.records.models import BucketRange

WEIGHTS = st.dictionaries(st.integers(1, 5), st.integers(0, BUCKETS), max_size=5)


def owners(arms: tuple[BucketRange, ...]) -> np.ndarray:
    """By bucket: the version, or 0."""
    found = np.zeros(BUCKETS, np.int8)
    for arm in arms:
        found[arm.offset : arm.end] = arm.version
    return found


def all_kept(before: tuple[BucketRange, ...], after: tuple[BucketRange, ...]) -> bool:
    had = owners(before)
    return bool((owners(after)[had > 0] == had[had > 0]).all())


def fit(weights: dict[int, int], room: int = BUCKETS) -> dict[int, int]:
    """Shrink weights so that they fit."""
    total = sum(weights.values())
    return {version: weight * room // total for version, weight in weights.items()} if total > room else weights


def test_a_growing_arm_keeps_its_buckets_and_those_of_others() -> None:
    first = assign_buckets({4: 1000, 5: 1000})
    assert first == (BucketRange(version=4, offset=0, weight=1000), BucketRange(version=5, offset=1000, weight=1000))
    later = assign_buckets({4: 3000, 5: 1000}, first)
    assert all_kept(first, later)
    assert later[-1] == BucketRange(version=4, offset=2000, weight=2000)


def test_a_shrinking_arm_gives_its_highest_buckets_away() -> None:
    assert assign_buckets({4: 300}, assign_buckets({4: 1000})) == (BucketRange(version=4, offset=0, weight=300),)


def test_a_version_without_weight_has_no_arm() -> None:
    assert assign_buckets({4: 0, 5: 10}, assign_buckets({4: 100})) == (BucketRange(version=5, offset=0, weight=10),)


def test_arms_of_other_models_are_left_alone() -> None:
    taken = [BucketRange(version=9, offset=0, weight=6000)]
    arms = assign_buckets({4: 4000}, taken=taken)
    assert arms == (BucketRange(version=4, offset=6000, weight=4000),)
    assert not overlapping([*taken, *arms])


def test_a_full_layer_is_refused_with_both_numbers() -> None:
    with pytest.raises(ExhaustedError, match=r"layer: 40 % of the buckets are free, expected 40.01 %"):
        assign_buckets({4: 4001}, taken=[BucketRange(version=9, offset=0, weight=6000)])


@given(WEIGHTS, WEIGHTS, st.integers(0, 3000), st.integers(0, 7000))
def test_users_keep_their_version_where_possible(
    old: dict[int, int], new: dict[int, int], width: int, offset: int
) -> None:
    taken = [BucketRange(version=99, offset=offset, weight=width)] if width else []
    old, new = fit(old, BUCKETS - width), fit(new, BUCKETS - width)
    before = assign_buckets(old, taken=taken)
    after = assign_buckets(new, before, taken)
    assert not overlapping([*taken, *after])
    had, has = owners(before), owners(after)
    for version in {*old, *new}:
        kept = ((had == version) & (has == version)).sum()
        assert (has == version).sum() == new.get(version, 0)
        assert kept == min(old.get(version, 0), new.get(version, 0))
    joined = [(a, b) for a, b in itertools.pairwise(after) if a.version == b.version and a.end == b.offset]
    assert not joined


@given(WEIGHTS)
def test_the_same_weights_change_nothing(weights: dict[int, int]) -> None:
    arms = assign_buckets(fit(weights))
    assert assign_buckets(fit(weights), arms) == arms


@given(st.lists(st.integers(0, BUCKETS), min_size=2, max_size=20), st.integers(0, 4000))
def test_a_ramp_up_moves_only_from_the_baseline_to_the_variant(points: list[int], other: int) -> None:
    points = sorted(min(point, BUCKETS - other) for point in points)
    arms = assign_buckets({5: other})
    for weight in points:
        later = assign_buckets({4: weight, 5: other}, arms)
        assert all_kept(arms, later)
        arms = later


@pytest.mark.parametrize(
    ("percent", "weight"), [(0, 0), (0.01, 1), (10, 1000), (33.33, 3333), (0.07, 7), (100, 10_000)]
)
def test_percent(percent: float, weight: int) -> None:
    assert to_weight(percent) == weight
    assert to_percent(weight) == pytest.approx(percent)


@pytest.mark.parametrize("percent", [-0.01, 100.01, 0.005, 33.333, float("nan"), float("inf")])
def test_invalid_percentages_are_refused(percent: float) -> None:
    with pytest.raises(InvalidError, match="weight"):
        to_weight(percent)


@given(st.integers(0, BUCKETS))
def test_percent_and_back(weight: int) -> None:
    assert to_weight(to_percent(weight)) == weight


def test_overlapping_arms_are_detected() -> None:
    assert overlapping([BucketRange(version=1, offset=5, weight=2), BucketRange(version=2, offset=0, weight=6)])
    assert not overlapping([BucketRange(version=1, offset=6, weight=2), BucketRange(version=2, offset=0, weight=6)])


@given(WEIGHTS)
def test_more_than_all_buckets_are_refused(weights: dict[int, int]) -> None:
    assume(sum(weights.values()) > BUCKETS)
    with pytest.raises(ExhaustedError):
        assign_buckets(weights)

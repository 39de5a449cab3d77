# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.proxies.host_statistics import shadow_version, stats, version_stats
from serving_proxy.counters.stats_file import live_text, precision_now, read_tallies

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "model_host.md"


def _example(first: str) -> dict[str, Any]:
    """Read the example that follows a line of the document."""
    text = DOCUMENT.read_text(encoding="utf-8").partition(f"\n{first}")[2]
    block = re.search(r"(?:^    .*\n)+", text, re.MULTILINE)
    assert block is not None
    found: dict[str, Any] = json.loads(block[0])
    return found


def test_documented_examples_are_understood() -> None:
    found = read_tallies(_example("`stats.json` contains") | {"shadow": _example("`shadow.json` covers")})
    version, shadow = found["ranking", 4], found["ranking", 5]
    assert (version.requests, version.failures) == (12003, 3)
    assert version.latency.counts == (0, 17, 933, 12003 - 950)
    assert (version.run.mean, version.run.count) == (341.0, 12000)
    assert (version.arms["pinned"], version.sheds["deadline"]) == (1003, 2)
    assert shadow.shadow == {"compared": 4100, "failed": 1, "dropped": 12}
    assert shadow.correlation.mean == pytest.approx(0.99978)
    assert (shadow.difference.count, shadow.difference.max) == (4100, 0.004)
    assert shadow.difference.mean == pytest.approx(9.3e-05)
    assert (shadow.shadow_scores.answers, shadow.shadow_scores.count, shadow.shadow_scores.bad) == (4100, 131200, 0.0)


def test_mismatched_numbers_of_scores_count_as_failures() -> None:
    data = {"requests": 10, "mismatches": 4, "errors": 3, "scores": 60, "nan": 0.5, "live_nan": 0.1}
    tally = read_tallies({"shadow": stats({1: data})})["ranking", 1]
    assert tally.shadow == {"compared": 6, "failed": 7, "dropped": 0}
    assert (tally.shadow_scores.nan, tally.baseline_scores.nan, tally.mirrored) == (30, 6, 13)


def test_a_mean_without_squares_has_the_largest_possible_variance() -> None:
    data = shadow_version(1000, correlation=0.5)
    del data["rank_correlation_squares"], data["request_difference_squares"]
    tally = read_tallies({"shadow": stats({1: data})})["ranking", 1]
    assert tally.correlation.squares == 1000
    assert tally.difference.squares == pytest.approx(1000 * 0.2**2)


def test_missing_counters_count_as_zero() -> None:
    assert read_tallies({}) == {}
    tally = read_tallies({"models": {"m": {"versions": {"1": {}}}}})["m", 1]
    assert (tally.requests, tally.latency.count, tally.mirrored) == (0, 0, 0)


def test_histograms_with_unsorted_bounds_are_ignored() -> None:
    data = version_stats(ok=10)
    data["duration_us"]["buckets"].reverse()
    assert read_tallies(stats({1: data}))["ranking", 1].latency.count == 0


def test_the_text_of_a_followed_timeline_names_a_precision_that_has_changed() -> None:
    live: dict[str, Any] = {"epoch": 7, "precision": {"precision": "bf16", "reason": "it is permitted"}}
    assert live_text(live) == "epoch 7"
    assert precision_now(live) == {"precision": "bf16"}
    live["precision"] = {"precision": "fp32", "reason": "epoch 6 loses 0.2", "fell_back": True}
    assert live_text(live) == "epoch 7; in fp32: epoch 6 loses 0.2"
    assert precision_now(live) == {"precision": "fp32"}
    assert precision_now(None) == precision_now({"epoch": 7, "precision": None}) == {}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["models", "versions", "1", "m", "duration_us", "buckets", "outcomes", "OK", "scores", "requests"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=30,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(["models", "shadow", "time"]), _JSON))
def test_any_statistics_are_read_without_an_error(data: dict[str, Any]) -> None:
    for tally in read_tallies(data).values():
        assert tally.requests >= 0
        assert tally.latency.quantile(0.5) is None or tally.latency.count

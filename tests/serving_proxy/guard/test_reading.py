# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from guard_support import BOUNDS_US, stats, version_stats
from hypothesis import given, settings
from hypothesis import strategies as st

from serving_proxy.guard.reading import counting_since, read_tallies

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "model_host.md"


def _example(first: str) -> dict[str, Any]:
    """Read an example of the document; its ellipses stand for more of the same."""
    text = DOCUMENT.read_text(encoding="utf-8").partition(f"### {first}\n")[2]
    block = re.search(r"(?:^    .*\n)+", text, re.MULTILINE)
    assert block is not None
    found: dict[str, Any] = json.loads(block[0].replace(" …,", "").replace(", …]", "]"))
    return found


def test_documented_examples_are_understood() -> None:
    data = _example("stats.json") | {"shadow": _example("shadow.json")}
    found = read_tallies(data)
    version, shadow = found["ranking", 4], found["ranking", 5]
    assert version.requests == 12003
    assert version.latency.count == 967
    assert (version.run.mean or 0) == pytest.approx(4100000 / 12000)
    assert version.scores.answers == 800
    assert (shadow.copies, shadow.shadow["dropped"]) == (4101, 12)
    assert shadow.correlation.mean == pytest.approx(3999.1 / 4000)
    assert counting_since(data) == ("4711", "2026-11-21T19:00:00Z")


def test_what_is_missing_counts_as_nothing() -> None:
    assert read_tallies({}) == {}
    tally = read_tallies({"models": {"m": {"versions": {"1": {}}}}})["m", 1]
    assert (tally.requests, tally.latency.count, tally.copies) == (0, 0, 0)


def test_bounds_that_do_not_rise_are_not_believed() -> None:
    data = stats({1: version_stats(ok=10)}) | {"latency_bounds_us": list(reversed(BOUNDS_US))}
    assert read_tallies(data)["ranking", 1].latency.count == 0


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["models", "versions", "1", "m", "latency", "counts", "outcomes", "OK", "scores", "shadow"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=30,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(["models", "shadow", "latency_bounds_us"]), _JSON))
def test_nothing_that_a_host_writes_is_too_much(data: dict[str, Any]) -> None:
    for tally in read_tallies(data).values():
        assert tally.requests >= 0
        assert tally.latency.quantile(0.5) is None or tally.latency.count

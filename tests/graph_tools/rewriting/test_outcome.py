# SPDX-License-Identifier: Apache-2.0
"""Outcomes of searches can be combined without looking at their types."""

from __future__ import annotations

from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused


def _half(number: int) -> Outcome[int]:
    return Refused(f"{number} is odd") if number % 2 else Found(number // 2)


def test_then_continues_only_with_a_found_value() -> None:
    assert Found(8).then(_half).then(_half) == Found(2)
    assert Found(6).then(_half).then(_half).then(_half) == Refused("3 is odd")
    assert NoMatch().then(_half) == NoMatch()


def test_in_context_changes_only_the_reason_of_a_refusal() -> None:
    assert _half(3).in_context("the first layer") == Refused("the first layer: 3 is odd")
    assert _half(2).in_context("the first layer") == Found(1)
    assert NoMatch().in_context("the first layer") == NoMatch()

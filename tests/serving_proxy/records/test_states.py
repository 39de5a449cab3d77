# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from itertools import pairwise, product

import pytest

from serving_proxy.errors import PreconditionError
from serving_proxy.records.states import ACTIVE, GATED, LEGAL, SERVED, State, check, steps_between

S = State


def test_every_state_has_its_successors() -> None:
    assert set(LEGAL) == set(State)


def test_life_of_a_version_is_legal() -> None:
    life = [S.NEW, S.VALIDATING, S.OPTIMIZING, S.LOADING, S.WARMING, S.READY, S.DRAINING, S.STOPPED]
    for old, new in pairwise(life):
        check(old, new)
    check(S.VALIDATING, S.LOADING)


@pytest.mark.parametrize("state", [state for state in State if state not in {S.STOPPED, S.DRAINING, S.FAILED}])
def test_every_state_may_fail(state: State) -> None:
    check(state, S.FAILED)


@pytest.mark.parametrize(("old", "new"), [(o, n) for o, n in product(State, State) if n not in LEGAL[o]])
def test_illegal_transitions_are_refused(old: State, new: State) -> None:
    with pytest.raises(PreconditionError, match=f"state: {new} after {old}, expected "):
        check(old, new)


def test_nothing_skips_validation_or_warm_up() -> None:
    assert S.LOADING not in LEGAL[S.NEW]
    assert [state for state in State if S.READY in LEGAL[state]] == [S.WARMING]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (S.LOADING, S.READY, (S.WARMING, S.READY)),
        (S.READY, S.WARMING, (S.LOADING, S.WARMING)),
        (S.FAILED, S.READY, (S.LOADING, S.WARMING, S.READY)),
        (S.READY, S.FAILED, (S.FAILED,)),
        (S.READY, S.READY, ()),
        (S.READY, S.STOPPED, (S.DRAINING, S.STOPPED)),
    ],
)
def test_steps_between_states_include_skipped_ones(old: State, new: State, expected: tuple[State, ...]) -> None:
    assert steps_between(old, new) == expected


def test_steps_between_states_are_legal() -> None:
    for old, new in product(State, State):
        try:
            passed = steps_between(old, new)
        except PreconditionError:
            continue
        state = old
        for passing in passed:
            check(state, passing)
            state = passing
        assert state == new


def test_a_stopped_version_needs_a_new_deployment() -> None:
    with pytest.raises(PreconditionError):
        steps_between(S.STOPPED, S.READY)


def test_groups_do_not_overlap() -> None:
    assert not GATED & SERVED
    assert set(State) - ACTIVE == {S.DRAINING, S.STOPPED, S.FAILED}

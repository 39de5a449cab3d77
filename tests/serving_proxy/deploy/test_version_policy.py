# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.proxies.lifecycle_records import NOW, deployed, settled
from serving_proxy.deploy.changes import move, promote, roll_back
from serving_proxy.deploy.version_policy import PolicyChoice, choose_versions, labels_to_publish, wanted_versions
from serving_proxy.records.models import Model, Policy, PolicyKind
from serving_proxy.records.states import State

LATEST = Policy()
ALL = Policy(kind=PolicyKind.ALL)


def there(*numbers: int) -> dict[int, str]:
    return dict.fromkeys(numbers, "s")


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (LATEST, {7}),
        (Policy(count=2), {5, 7}),
        (Policy(count=9), {1, 5, 7}),
        (ALL, {1, 5, 7}),
        (Policy(kind=PolicyKind.SPECIFIC, versions=(1, 5)), {1, 5}),
        (Policy(kind=PolicyKind.SPECIFIC, versions=(2,)), set()),
    ],
)
def test_wanted_versions(policy: Policy, expected: set[int]) -> None:
    assert wanted_versions(policy, [5, 1, 7]) == expected


def test_a_newer_version_is_loaded_and_becomes_the_baseline() -> None:
    model = settled(deployed(None, 3))
    assert choose_versions(LATEST, there(3, 4), model) == PolicyChoice(load=(4,), chosen=(4,))
    model = deployed(model, 4)
    assert choose_versions(LATEST, there(3, 4), model) == PolicyChoice(follow=4, chosen=(4,))
    assert choose_versions(LATEST, there(3, 4), promote(model, 4).model) == PolicyChoice(chosen=(4,))


def test_the_version_before_stays_as_the_last_good_one() -> None:
    model = settled(promote(settled(deployed(settled(deployed(None, 3)), 4)), 4).model)
    assert choose_versions(LATEST, there(3, 4), model) == PolicyChoice(chosen=(4,))


@pytest.mark.parametrize("policy", [LATEST, ALL, Policy(kind=PolicyKind.SPECIFIC, versions=(3, 4))])
def test_an_empty_directory_unloads_nothing(policy: Policy) -> None:
    model = settled(deployed(deployed(None, 3), 4))
    found = choose_versions(policy, {}, model)
    assert (found.load, found.unload, found.follow) == ((), (), None)


@pytest.mark.parametrize("policy", [LATEST, Policy(count=2), ALL])
def test_a_baseline_whose_directory_vanishes_stays(policy: Policy) -> None:
    model = settled(deployed(None, 4))
    found = choose_versions(policy, there(3), model)
    assert 4 in found.chosen
    assert found.follow is None
    assert found.load == ((3,) if policy != LATEST else ())
    both = settled(deployed(model, 3))
    assert choose_versions(policy, there(3), both).follow is None
    assert choose_versions(policy, there(3, 5), settled(deployed(both, 5))).follow == 5
    # Hosts have lost it as well, as after a restart: what is there takes its place.
    failed = move(both, 4, State.FAILED, NOW).model
    assert choose_versions(policy, there(3), failed).follow == 3


def test_all_versions_of_the_policy_are_served() -> None:
    model = settled(deployed(deployed(None, 3), 4))
    assert choose_versions(Policy(count=2), there(2, 3, 4), model).chosen == (3, 4)
    assert choose_versions(Policy(kind=PolicyKind.SPECIFIC, versions=(2, 4)), there(2, 3, 4), model).chosen == (2, 4)


def test_nothing_is_unloaded_until_a_wanted_version_is_ready() -> None:
    model = settled(deployed(deployed(None, 3), 2))
    loading = deployed(model, 7)
    assert choose_versions(LATEST, there(2, 3, 7), loading).unload == ()
    assert choose_versions(LATEST, there(2, 3, 7), settled(loading)).unload == (2,)


def test_a_failed_version_is_not_tried_again_until_its_files_change() -> None:
    model = settled(deployed(None, 3))
    failed = move(deployed(model, 4), 4, State.FAILED, NOW).model
    assert choose_versions(LATEST, there(3, 4), failed) == PolicyChoice(chosen=(4,))
    assert choose_versions(LATEST, {3: "s", 4: "t"}, failed) == PolicyChoice(load=(4,), chosen=(4,))


def test_a_version_that_was_rolled_back_is_not_followed() -> None:
    model = settled(promote(settled(deployed(settled(deployed(None, 3)), 4)), 4).model)
    model = settled(roll_back(model).model)
    assert choose_versions(LATEST, there(3, 4), model) == PolicyChoice(chosen=(4,))
    assert choose_versions(LATEST, there(3, 4, 5), deployed(model, 5)).follow == 5


def test_labels_keep_versions_and_missing_ones_are_named() -> None:
    model = settled(deployed(deployed(None, 3), 7)).change(labels={"old": 3, "gone": 1}, baseline=7)
    found = choose_versions(LATEST, there(3, 7), model)
    assert found.unload == ()
    assert found.missing == (1,)
    specific = Policy(kind=PolicyKind.SPECIFIC, versions=(7, 9))
    assert choose_versions(specific, there(7), model).missing == (1, 9)


NUMBERS = st.sets(st.integers(1, 9))


@given(st.sampled_from([LATEST, ALL, Policy(count=2)]), NUMBERS, st.sets(st.integers(1, 9), min_size=1), NUMBERS)
def test_serving_versions_are_never_removed(policy: Policy, found: set[int], had: set[int], failed: set[int]) -> None:
    model: Model | None = None
    for number in sorted(had):
        model = deployed(model, number)
    assert model is not None
    model = settled(model)
    for number in had & failed:
        model = move(model, number, State.FAILED, NOW).model
    made = choose_versions(policy, there(*found), model)
    assert choose_versions(policy, there(*found), model) == made
    assert model.baseline not in made.unload
    assert not set(made.load) & had - failed
    ready = {number for number in had if model.versions[number].state == State.READY}
    assert not ready or ready - set(made.unload)


def test_a_label_moves_once_its_version_is_ready() -> None:
    assert labels_to_publish({"stable": 4}, {"stable": 3}, ready=[3]) == {"stable": 3}
    assert labels_to_publish({"stable": 4}, {"stable": 3}, ready=[3, 4]) == {"stable": 4}
    assert labels_to_publish({"new": 4}, {"stable": 3}, ready=[3]) == {}

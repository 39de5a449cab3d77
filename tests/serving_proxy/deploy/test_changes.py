# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from helpers.proxies.lifecycle_records import NOW, deployed, host, settled, stepped
from serving_proxy.deploy.changes import (
    Change,
    choose,
    move,
    pause,
    promote,
    roll_back,
    set_traffic,
    start_ramp,
    undeploy,
)
from serving_proxy.errors import ExhaustedError, InvalidError, NotFoundError, PreconditionError
from serving_proxy.records.hosts import HostSeen
from serving_proxy.records.models import BucketRange, Model, Ramp
from serving_proxy.records.states import State


@pytest.fixture
def two() -> Model:
    """A model with the baseline 3 and version 4; both are ready."""
    return settled(deployed(deployed(None, 3), 4))


def test_traffic_is_set_exactly_as_requested(two: Model) -> None:
    model = set_traffic(two, {3: 9000, 4: 1000}, ()).model
    assert model.weights == {4: 1000}
    assert set_traffic(model, {4: 1000}, ()).notes == ()
    assert set_traffic(model, {4: 0}, ()).model.arms == ()
    assert set_traffic(model, {3: 10_000}, ()).model.arms == ()


@pytest.mark.parametrize(
    ("weights", "error", "said"),
    [
        ({3: 9000, 4: 900}, InvalidError, "traffic of ranking: 99 % in all, expected 100 %"),
        ({4: 10_001}, InvalidError, "traffic of ranking: 100.01 % in all, expected at most 100 %"),
        ({9: 100}, NotFoundError, "ranking/9: not deployed, expected one of 3, 4"),
    ],
)
def test_wrong_traffic_is_refused(two: Model, weights: dict[int, int], error: type[Exception], said: str) -> None:
    with pytest.raises(error) as refused:
        set_traffic(two, weights, ())
    assert str(refused.value) == said


def test_traffic_ends_ramps(two: Model) -> None:
    ramping = start_ramp(two, 4, 5000, 100.0, ()).model
    assert set_traffic(ramping, {4: 1000}, ()).model.ramps == ()


def test_a_failed_version_gets_no_traffic(two: Model) -> None:
    failed = move(two, 4, State.FAILED, NOW, "no memory").model
    with pytest.raises(
        PreconditionError, match=r"ranking/4: failed \(no memory\), expected a version that is deployed"
    ):
        set_traffic(failed, {4: 100}, ())


def test_repeating_a_ramp_changes_nothing(two: Model) -> None:
    model = start_ramp(two, 4, 5000, 3600.0, ()).model
    assert model.ramps == (Ramp(version=4, start=0, target=5000, seconds=3600.0),)
    assert start_ramp(model, 4, 5000, 3600.0, ()).model == model
    assert start_ramp(model, 4, 6000, 3600.0, ()).model.ramps[0].target == 6000


def test_a_ramp_of_zero_seconds_takes_effect_at_once(two: Model) -> None:
    model = start_ramp(two, 4, 5000, 0.0, ()).model
    assert (model.weights, model.ramps) == ({4: 5000}, ())
    assert start_ramp(model, 4, 5000, 60.0, ()).model == model
    assert start_ramp(model, 4, 0, 0.0, ()).model.arms == ()


def test_a_ramp_that_could_not_end_is_refused_at_its_start(two: Model) -> None:
    with pytest.raises(ExhaustedError):
        start_ramp(two, 4, 5000, 60.0, [BucketRange(version=1, offset=0, weight=6000)])
    three = deployed(two, 5)
    ramping = start_ramp(three, 4, 6000, 60.0, ()).model
    with pytest.raises(ExhaustedError):
        start_ramp(ramping, 5, 5000, 60.0, ())


def test_a_ramp_of_the_baseline_is_refused(two: Model) -> None:
    with pytest.raises(PreconditionError, match="is the baseline"):
        start_ramp(two, 3, 5000, 60.0, ())


def test_promotion_keeps_the_last_good_version_warm(two: Model) -> None:
    model = settled(promote(set_traffic(two, {4: 1000}, ()).model, 4).model)
    assert (model.baseline, model.last_good, model.candidate, model.arms) == (4, 3, None, ())
    assert model.versions[3].held
    assert model.versions[3].state == State.READY
    assert promote(model, 4).model == model


def test_promotion_waits_until_the_version_is_ready() -> None:
    model = promote(deployed(settled(deployed(None, 3)), 4), 4).model
    model, _ = stepped(model, host({3: "ready", 4: "warming"}))
    assert (model.baseline, model.candidate) == (3, 4)
    model, plan = stepped(model, host({3: "ready", 4: "ready"}))
    assert (model.baseline, model.candidate) == (4, None)
    assert plan.desired["models"]["ranking"]["baseline"] == 4


def test_promotion_of_a_version_that_fails_is_given_up() -> None:
    model = promote(deployed(settled(deployed(None, 3)), 4), 4).model
    model, plan = stepped(model, host({3: "ready", 4: "failed: corrupt"}))
    assert (model.baseline, model.candidate) == (3, None)
    assert "ranking/4: not promoted, host-0: corrupt" in [note.message for note in plan.notes]


def test_only_one_former_baseline_stays_loaded(two: Model) -> None:
    model = settled(promote(two, 4).model)
    model = settled(promote(settled(deployed(model, 5)), 5).model)
    assert (model.baseline, model.last_good) == (5, 4)
    assert model.versions[3].state == State.STOPPED


def test_a_labeled_version_stays(two: Model) -> None:
    model = settled(promote(two.change(labels={"old": 3}), 4).model)
    model = settled(promote(settled(deployed(model, 5)), 5).model)
    assert model.versions[3].state == State.READY


def test_roll_back_returns_at_once_and_only_once(two: Model) -> None:
    promoted = settled(promote(two, 4).model)
    change = roll_back(promoted)
    model, plan = stepped(change.model, host({3: "ready", 4: "ready"}))
    assert (model.baseline, model.last_good) == (3, 3)
    assert model.versions[4].held
    assert model.versions[4].rejected
    assert plan.desired["models"]["ranking"]["versions"]["4"]["traffic"] is False
    with pytest.raises(PreconditionError, match="ranking: was already rolled back to 3, expected a newer baseline"):
        roll_back(model)


def test_roll_back_removes_all_variants(two: Model) -> None:
    model = start_ramp(set_traffic(two, {4: 1000}, ()).model, 4, 5000, 60.0, ()).model
    model = settled(roll_back(model).model)
    assert (model.baseline, model.arms, model.ramps) == (3, (), ())
    with pytest.raises(PreconditionError, match="ranking: was already rolled back to 3"):
        roll_back(model)


def test_roll_back_says_that_the_last_good_version_has_failed(two: Model) -> None:
    promoted = settled(promote(two, 4).model)
    model, _ = stepped(promoted, host({3: "failed: gone", 4: "ready"}))
    with pytest.raises(PreconditionError, match=r"the last good baseline 3 is failed \(host-0: gone\).*; 4 stays"):
        roll_back(model)
    model = settled(deployed(model, 5, traffic=1000)).change(last_good=3)
    model, _ = stepped(model, host({3: "failed: gone", 4: "ready", 5: "ready"}))
    model = roll_back(model).model
    assert (model.arms, model.baseline, model.candidate) == ((), 4, None), "variants are taken back all the same"
    model = settled(model)
    assert settled(roll_back(model).model).baseline == 3, "once hosts have it again"


def test_versions_of_the_policy_serve_requests_that_name_them(two: Model) -> None:
    promoted = settled(promote(two, 4).model)

    def traffic(model: Model) -> dict[str, bool]:
        versions = stepped(model, host({3: "ready", 4: "ready"}))[1].desired["models"]["ranking"]["versions"]
        return {number: version.get("traffic", True) for number, version in versions.items()}

    assert traffic(promoted) == {"3": False, "4": True}
    chosen = choose(promoted, [3, 4, 9]).model
    assert traffic(chosen) == {"3": True, "4": True}
    assert choose(chosen, [3, 4]) == Change(chosen)
    assert traffic(settled(roll_back(chosen).model)) == {"3": True, "4": True}
    assert traffic(choose(chosen, ()).model) == {"3": False, "4": True}


def test_roll_back_ends_a_promotion_that_waits() -> None:
    model = promote(deployed(settled(deployed(None, 3)), 4), 4).model
    assert settled(roll_back(model).model).baseline == 3


def test_a_roll_back_without_a_target_is_refused_with_the_reason() -> None:
    with pytest.raises(PreconditionError, match="ranking: 3 is the first baseline, expected an earlier one"):
        roll_back(settled(deployed(None, 3)))


@pytest.mark.parametrize("hosts", [[host({3: "loading", 4: "ready"})], [host({3: "ready"}), host({}, "host-1")], []])
def test_roll_back_waits_for_no_host(two: Model, hosts: list[HostSeen]) -> None:
    """If the baseline crashes the hosts, there is no host to wait for."""
    promoted = settled(promote(two, 4).model)
    model, plan = stepped(roll_back(promoted).model, *hosts)
    assert (model.baseline, model.candidate) == (3, None)
    assert plan.desired["models"]["ranking"]["baseline"] == 3


def test_roll_back_to_a_version_that_has_failed_since_is_given_up(two: Model) -> None:
    promoted = settled(promote(two, 4).model)
    model, _ = stepped(roll_back(promoted).model, host({3: "failed: gone", 4: "ready"}))
    assert (model.baseline, model.candidate) == (4, None)


def test_a_rolled_back_version_may_be_promoted_again(two: Model) -> None:
    model = settled(roll_back(settled(promote(two, 4).model)).model)
    model = settled(promote(model, 4).model)
    assert (model.baseline, model.last_good) == (4, 3)
    assert not model.versions[4].rejected


def test_traffic_for_a_held_version_releases_it(two: Model) -> None:
    model = settled(promote(two, 4).model)
    model = set_traffic(model, {3: 500, 4: 9500}, ()).model
    assert not model.versions[3].held


def test_pause_and_back(two: Model) -> None:
    paused = pause(two, True).model
    assert paused.paused
    assert pause(paused, True).notes == ()
    assert pause(paused, False).model == two


def test_undeploy_of_a_variant_gives_its_share_back(two: Model) -> None:
    model = set_traffic(two, {4: 1000}, ()).model.change(labels={"canary": 4}, published={"canary": 4})
    model = undeploy(model, 4, NOW).model
    assert (model.arms, model.labels, model.published) == ((), {}, {})
    assert model.versions[4].state == State.DRAINING
    assert undeploy(model, 4, NOW).model == model
    assert settled(model).versions[4].state == State.STOPPED


def test_undeploy_of_a_baseline_among_others_is_refused(two: Model) -> None:
    with pytest.raises(PreconditionError, match="ranking/3: is the baseline of 4, expected another version"):
        undeploy(two, 3, NOW)


def test_undeploy_of_all(two: Model) -> None:
    model = settled(undeploy(two, None, NOW).model)
    assert {version.state for version in model.versions.values()} == {State.STOPPED}
    assert model.baseline is None
    assert undeploy(model, None, NOW).model == model


def test_undeploy_of_an_unknown_version(two: Model) -> None:
    with pytest.raises(NotFoundError, match="ranking/9: not deployed, expected one of 3, 4"):
        undeploy(two, 9, NOW)


def test_promotion_past_a_policy_holds() -> None:
    model = settled(deployed(deployed(deployed(None, 3), 4), 5))
    model = model.change(policy={"kind": "all"}, baseline=5)
    assert promote(model, 4).model.versions[5].rejected

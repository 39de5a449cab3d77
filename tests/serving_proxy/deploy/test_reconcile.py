# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from helpers.proxies.lifecycle_records import NOW, deployed, host, settled, stepped
from serving_proxy.deploy.changes import move, pause, set_traffic, start_ramp, undeploy
from serving_proxy.deploy.deployment import Deployment, deploy
from serving_proxy.deploy.reconcile import Snapshot, reconcile
from serving_proxy.records.models import BucketRange, Model
from serving_proxy.records.states import State


def states(model: Model) -> dict[int, State]:
    return {number: version.state for number, version in model.versions.items()}


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ("loading", State.LOADING),
        ("warming", State.WARMING),
        ("ready", State.READY),
        ("failed: corrupt", State.FAILED),
    ],
)
def test_a_version_follows_its_host(seen: str, expected: State) -> None:
    model, _ = stepped(deployed(None, 3), host({3: seen}))
    assert states(model) == {3: expected}


def test_skipped_states_are_recorded() -> None:
    _, plan = stepped(deployed(None, 3), host({3: "ready"}))
    assert [note.data["to"] for note in plan.notes] == ["warming", "ready"]


def test_a_host_that_comes_back_loads_again_and_a_failed_version_may_recover() -> None:
    model = settled(deployed(None, 3))
    model, _ = stepped(model, host({3: "loading"}))
    assert states(model) == {3: State.LOADING}
    model, _ = stepped(model, host({3: "failed: no memory"}))
    assert model.versions[3].reason == "host-0: no memory"
    assert settled(model).versions[3].state == State.READY


def test_without_hosts_nothing_is_ready() -> None:
    model, _ = stepped(settled(deployed(None, 3)))
    assert (model.versions[3].state, model.versions[3].reason) == (State.LOADING, "no host is running")
    again, plan = stepped(model)
    assert again == model
    assert plan.notes == ()


def test_a_version_stops_only_when_no_host_has_it() -> None:
    model = undeploy(settled(deployed(deployed(None, 3), 4)), 4, NOW).model
    draining, plan = stepped(model, host({3: "ready", 4: "draining"}))
    assert states(draining)[4] == State.DRAINING
    assert list(plan.desired["models"]["ranking"]["versions"]) == ["3"]
    stopped, _ = stepped(draining, host({3: "ready"}))
    assert states(stopped)[4] == State.STOPPED


def test_a_version_that_did_not_pass_its_gates_is_not_desired() -> None:
    change, _ = deploy(settled(deployed(None, 3)), Deployment(source="/models/4", number=4, traffic=1000), (), NOW)
    _, plan = stepped(change.model, host({3: "ready"}))
    assert list(plan.desired["models"]["ranking"]["versions"]) == ["3"]
    assert plan.desired["models"]["ranking"]["routing"]["arms"] == []


def test_another_version_becomes_the_baseline_if_the_first_never_loaded() -> None:
    change, _ = deploy(Model(name="ranking"), Deployment(source="/models/3", number=3), (), NOW)
    both = deployed(change.model, 4, traffic=1000)
    failed = move(both, 3, State.FAILED, NOW, "no such folder").model
    model, plan = stepped(failed, host({}))
    assert model.baseline == 4
    assert model.arms == ()
    assert plan.desired["models"]["ranking"]["baseline"] == 4


def test_a_label_is_published_once_its_version_is_ready() -> None:
    model = settled(deployed(None, 3, labels=("stable",)))
    assert model.published == {"stable": 3}
    moved = deployed(model, 4, labels=("stable",))
    later, plan = stepped(moved, host({3: "ready", 4: "loading"}))
    assert plan.desired["models"]["ranking"]["labels"] == {"stable": 3}
    assert settled(later).published == {"stable": 4}


def ramping(seconds: float = 100.0) -> Model:
    model = settled(deployed(deployed(None, 3), 4))
    return start_ramp(model, 4, 5000, seconds, ()).model


def test_a_ramp_moves_with_its_clock() -> None:
    model, _ = stepped(ramping(), host({3: "ready", 4: "ready"}), seconds=50)
    assert model.weights == {4: 2500}
    assert model.ramps[0].elapsed == 50
    model, plan = stepped(model, host({3: "ready", 4: "ready"}), seconds=50)
    assert (model.weights, model.ramps) == ({4: 5000}, ())
    assert plan.notes[0].message == "ranking/4: 50 % of the traffic, the ramp has ended"


def test_a_ramp_writes_only_changed_weights() -> None:
    model = ramping(3600)
    later, plan = stepped(model, host({3: "ready", 4: "ready"}), seconds=5)
    assert later == model
    assert plan.changed == {}


@pytest.mark.parametrize("state", ["loading", "failed: corrupt"])
def test_a_ramp_waits_for_its_version(state: str) -> None:
    model, _ = stepped(ramping(), host({3: "ready", 4: state}), seconds=50)
    assert model.weights == {}
    model, _ = stepped(model, host({3: "ready", 4: "ready"}), seconds=10)
    assert model.weights == {4: 500}


def test_a_ramp_waits_while_the_model_is_paused() -> None:
    model = pause(ramping(), True).model
    later, plan = stepped(model, host({3: "ready", 4: "ready"}), seconds=50)
    assert later == model
    assert plan.desired["models"]["ranking"]["routing"]["paused"] is True


def test_a_ramp_ends_if_the_layer_is_full() -> None:
    model = ramping().change(layer="shared")
    other = Model(name="other", layer="shared", arms=(BucketRange(version=1, offset=0, weight=9000),))
    plan = reconcile(
        Snapshot({"ranking": model, "other": other}, [host({3: "ready", 4: "ready"})], NOW, {"ranking": {4: 90.0}})
    )
    assert plan.changed["ranking"].ramps == ()
    assert "ramp ended, layer: 10 % of the buckets are free" in plan.notes[0].message


def test_two_models_of_one_layer_never_share_a_bucket() -> None:
    ranking = settled(deployed(deployed(None, 3, layer="shared"), 4, traffic=4000))
    other = ranking.change(name="other", arms=())
    other = set_traffic(other, {4: 6000}, ranking.arms).model
    plan = reconcile(Snapshot({"ranking": ranking, "other": other}, [], NOW))
    arms = [arm for model in plan.desired["models"].values() for arm in model["routing"]["arms"]]
    buckets = [bucket for arm in arms for bucket in range(arm["offset"], arm["offset"] + arm["weight"])]
    assert sorted(buckets) == list(range(10_000))


def test_the_same_snapshot_gives_the_same_plan() -> None:
    snapshot = Snapshot({"ranking": ramping()}, [host({3: "ready", 4: "ready"})], NOW, {"ranking": {4: 33.0}})
    assert reconcile(snapshot) == reconcile(snapshot)

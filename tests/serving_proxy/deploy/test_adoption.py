# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from helpers.proxies.lifecycle_records import NOW, deployed, settled
from serving_proxy.deploy.adoption import adopt
from serving_proxy.deploy.changes import choose, promote, roll_back, set_traffic, start_ramp
from serving_proxy.deploy.desired_state import HostSettings, render
from serving_proxy.records.guard_settings import GuardSettings
from serving_proxy.records.models import Batching, Limits, Model, Policy, RequestLog, Settings, Tables
from serving_proxy.records.placement import ModelPlacement, Placement, Replica
from serving_proxy.records.states import State

# What a database alone knows: when, and why; and what the files say.
_LOST = {"state", "reason", "since", "deployed_at", "stamp", "signatures", "bytes", "ops"}


def known(model: Model) -> dict[str, Any]:
    """Return a model without the fields that only a database contains."""
    found = model.model_dump(exclude={"versions"})
    versions = {n: version.model_dump(exclude=_LOST) for n, version in model.versions.items() if version.desired}
    return found | {"versions": versions}


def full() -> Model:
    settings = Settings(
        config={"session_num": 2}, warmup_file="/w", cpuset="0;1", batching=Batching(mode="timed"),
        limits=Limits(max_queue=3), priority=-2, tables=Tables(tier="tiered", memory="1.5TB"),
    )  # fmt: skip
    model = deployed(settled(deployed(None, 3)), 4, settings=settings, labels=("canary",), slo_p99_ms=7.5)
    model = settled(promote(settled(model), 4).model)
    model = settled(deployed(model, 5, shadow=100))
    model = start_ramp(set_traffic(model, {5: 1000}, ()).model, 5, 5000, 60.0, ()).model
    return model.change(
        layer="page", key_input="user", paused=True, guard=GuardSettings(action="alert"),
        request_log=RequestLog(sample=100),
    )  # fmt: skip


def of_a_policy() -> Model:
    model = settled(promote(settled(deployed(deployed(None, 3), 4)), 4).model)
    return choose(model.change(base_path="/base", policy=Policy(count=2), labels={"next": 9}), [3, 4]).model


@pytest.mark.parametrize(
    "model",
    [
        settled(deployed(None, 3)),
        full(),
        of_a_policy(),
        settled(roll_back(settled(promote(settled(deployed(deployed(None, 3), 4)), 4).model)).model),
        promote(settled(deployed(deployed(None, 3), 4)), 4).model,
    ],
    ids=["one", "full", "policy", "rolled back", "promoting"],
)
@pytest.mark.parametrize("divided", [0, 6])
def test_a_rendered_state_is_read_back_unchanged(model: Model, divided: int) -> None:
    settings = HostSettings(divided_cpus=divided, limits={"ranking/4": 2})
    body = render({"ranking": model}, settings)
    found = adopt({"generation": 7, **body}, NOW)
    assert found.left == ()
    assert known(found.models["ranking"]) == known(model)
    assert render(found.models, settings) == body
    assert {version.state for version in found.models["ranking"].versions.values()} == {State.LOADING}


def test_machines_of_a_model_are_read_back() -> None:
    model = settled(deployed(None, 3))
    placed = ModelPlacement(replicas=(Replica(machine="m", version=3, cores=2),), leaving={3: ("n",)})
    body = render({model.name: model}, HostSettings(), Placement(models={model.name: placed}))
    found = adopt(body, NOW)
    assert (found.placed, found.left) == ({model.name: placed}, ())
    assert known(found.models[model.name]) == known(model)


def test_adopted_models_can_be_operated() -> None:
    model = settled(adopt(render({"ranking": full()}, HostSettings()), NOW).models["ranking"])
    assert settled(promote(model, 5).model).baseline == 5
    back = settled(roll_back(model).model)
    assert (back.baseline, back.weights) == (3, {})


def test_a_handwritten_entry_is_adopted_with_traffic_shadow_and_labels() -> None:
    versions = {
        "1": {"path": "/m/1", "traffic": False},
        "2": {"path": "/m/2", "config": None},
        "3": {"path": "/m/3", "cpuset": "0"},
    }
    entry = {
        "baseline": 2, "labels": {"next": 3}, "shadow": [{"version": 3, "weight": 5}], "versions": versions,
        "routing": {"arms": [{"version": 3, "offset": 10, "weight": 100}, {"version": 3, "offset": 0, "weight": 0}]},
    }  # fmt: skip
    found = adopt({"models": {"ranking": entry}}, NOW)
    assert found.left == ()
    model = found.models["ranking"]
    assert (model.baseline, model.last_good, model.labels, model.weights) == (2, 1, {"next": 3}, {3: 100})
    assert model.versions[3].shadow == 5
    assert model.versions[3].settings == Settings(cpuset="0")
    assert settled(roll_back(settled(model)).model).baseline == 1


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (None, "m: baseline is missing"),
        ({"baseline": 1, "versions": {}}, "m: baseline 1, expected a version that can be read"),
        ({"baseline": 1, "versions": {"1": {}}}, "m/1: path is missing"),
        ({"baseline": 1, "versions": {"one": {"path": "/m"}}}, "m/one: invalid literal"),
        ({"baseline": 1, "versions": {"1": {"path": "/m", "priority": 5000}}}, "m/1: priority: "),
        (
            {"baseline": 1, "versions": {"1": {"path": "/m"}},
             "routing": {"arms": [{"version": 2, "offset": 0, "weight": 9}]}},
            "m: arms of versions [2]",
        ),
    ],
)  # fmt: skip
def test_invalid_entries_are_reported_and_do_not_affect_others(entry: Any, message: str) -> None:
    good = {"baseline": 1, "versions": {"1": {"path": "/m/1"}}}
    found = adopt({"models": {"good": good, "m": entry, "": good}}, NOW)
    assert list(found.models) == ["good"]
    assert any(reason.startswith(message) for reason in found.left), found.left
    assert any(reason.startswith(": model ''") for reason in found.left), found.left

# SPDX-License-Identifier: Apache-2.0
"""Provide models and hosts as records, for tests of pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serving_proxy.deploy.changes import move
from serving_proxy.deploy.deployment import Deployment, deploy
from serving_proxy.deploy.reconcile import Reconciliation, Snapshot, reconcile
from serving_proxy.records.hosts import HostSeen, VersionSeen
from serving_proxy.records.models import Model
from serving_proxy.records.states import State

NOW = 1000.0


def deployed(model: Model | None, number: int, **options: Any) -> Model:
    """Deploy a version from `/models/NUMBER` and pass it through the gates."""
    asked = Deployment(source=f"/models/{number}", number=number, stamp="s", **options)
    change, found = deploy(model or Model(name="ranking"), asked, (), NOW)
    assert found == number
    return admitted(change.model, number)


def admitted(model: Model, number: int) -> Model:
    """Pass a new version through the gates."""
    if model.versions[number].state != State.NEW:
        return model
    model = move(move(model, number, State.VALIDATING, NOW).model, number, State.LOADING, NOW).model
    return model.with_version(model.versions[number].model_copy(update={"path": f"/models/{number}"}))


def host(states: Mapping[int, str], name: str = "host-0", model: str = "ranking", **values: Any) -> HostSeen:
    """Return a live host with versions in the given states; `failed: reason` for one that failed."""
    versions = {}
    for number, state in states.items():
        kind, _, error = state.partition(": ")
        versions[number] = VersionSeen(kind, f"/models/{number}", error or None)
    return HostSeen(**{"name": name, "alive": True, "pid": 1, "state": "ready", "models": {model: versions}, **values})


def stepped(model: Model, *hosts: HostSeen, seconds: float = 0.0) -> tuple[Model, Reconciliation]:
    """Run one step of the control loop with one model."""
    clocks = {ramp.version: seconds for ramp in model.ramps}
    plan = reconcile(Snapshot({model.name: model}, hosts, NOW, {model.name: clocks}))
    return plan.changed.get(model.name, model), plan


def settled(model: Model, seconds: float = 0.0) -> Model:
    """Let one host apply all that is desired, until nothing changes any more."""
    for _ in range(10):
        there = {number: "ready" for number, version in model.versions.items() if version.desired}
        later, _ = stepped(model, host(there), seconds=seconds)
        if later == model:
            return model
        model, seconds = later, 0.0
    raise AssertionError("the control loop does not come to rest")

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from helpers.proxies.lifecycle_records import deployed, settled
from serving_proxy.deploy.desired_state import HostSettings, render
from serving_proxy.fleet.machine_state import has_placement, state_of
from serving_proxy.records.placement import ModelPlacement, Placement, Replica


def test_machine_gets_the_versions_that_are_placed_there() -> None:
    model = settled(deployed(settled(deployed(settled(deployed(None, 3)), 4, traffic=1000)), 5))
    other = model.change(name="other")
    placed = ModelPlacement(replicas=(Replica(machine="a"), Replica(machine="b", version=5)))
    models = {model.name: model, "other": other}
    body = render(models, HostSettings(), Placement(models={model.name: placed}))
    plain = render(models, HostSettings())
    assert (has_placement(body), has_placement(plain)) == (True, False)
    found = {machine: state_of(body, machine) for machine in "abc"}
    assert {machine: list(state["models"]) for machine, state in found.items()} == {
        "a": ["other", model.name], "b": ["other", model.name], "c": ["other"],
    }  # fmt: skip
    # The last version has no role, so it is only where its entry is.
    assert list(found["a"]["models"][model.name]["versions"]) == ["3", "4"]
    assert found["b"]["models"][model.name] == plain["models"][model.name]
    assert found["a"]["models"]["other"] == plain["models"]["other"]

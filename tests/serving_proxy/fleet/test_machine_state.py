# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from helpers.proxies.lifecycle_records import deployed, settled
from serving_proxy.deploy.adoption import adopt
from serving_proxy.deploy.desired_state import HostSettings, render
from serving_proxy.fleet.machine_state import cores_of, has_placement, state_of
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


def test_versions_without_an_entry_share_the_cores_of_their_model() -> None:
    model = settled(deployed(settled(deployed(settled(deployed(None, 3)), 4, traffic=1000)), 5))
    third, fourth = Replica(machine="a", version=3, cores=4, core_list="0-3"), Replica(machine="a", version=4, cores=1)
    other = Replica(machine="b", cores=2, core_list="5,7")
    placed = ModelPlacement(replicas=(third, fourth, other, Replica(machine="c")), leaving={3: ("d",)})
    body = render({model.name: model}, HostSettings(), Placement(models={model.name: placed}))
    name, large = model.name, {"cores": 4, "core_list": "0-3"}
    assert cores_of(body, "a") == {f"{name}/3": large, f"{name}/4": {"cores": 1, "core_list": ""}}
    assert cores_of(body, "b") == {f"{name}/{n}": {"cores": 2, "core_list": "5,7"} for n in (3, 4, 5)}
    assert cores_of(body, "c") == cores_of(body, "d") == cores_of(body, "e") == {}
    placed = ModelPlacement(replicas=(third,))
    body = render({model.name: model}, HostSettings(), Placement(models={model.name: placed}))
    assert cores_of(body, "a") == {f"{name}/{n}": large for n in (3, 4, 5)}


def test_state_differs_if_cores_are_placed_so_that_running_agents_get_it() -> None:
    model = settled(deployed(None, 3))
    placed = Placement(models={model.name: ModelPlacement(replicas=(Replica(machine="a", cores=2),))})
    without, with_cores = (
        render({model.name: model}, HostSettings(placed_cores=has_cores), placed) for has_cores in (False, True)
    )
    assert without != with_cores
    # Hosts get the same.
    assert state_of(without, "a") == state_of(with_cores, "a")
    assert cores_of(without, "a") == cores_of(with_cores, "a") != {}
    assert adopt(with_cores, 0.0).placed == placed.models

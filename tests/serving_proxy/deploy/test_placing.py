# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from serving_proxy.deploy.placing import by_machine, changed, hosts_for, judging_hosts, read_placement, waits_for
from serving_proxy.errors import InvalidError
from serving_proxy.records.hosts import HostSeen, VersionSeen
from serving_proxy.records.models import BucketRange, Model, Version
from serving_proxy.records.placement import Placement
from serving_proxy.records.states import State


def replica(model: str, machine: str, version: str | None = None, **values: Any) -> dict[str, Any]:
    return {"name": model, "model": model, "version": version, "machine": machine, **values}


def placement(*replicas: dict[str, Any]) -> Placement:
    return read_placement({"schema": "placement/1", "replicas": list(replicas)}, 5.0, 0.0)


def model(*numbers: int, **values: Any) -> Model:
    versions = {n: Version(number=n, source=f"/m/{n}", path=f"/m/{n}", state=State.READY) for n in numbers}
    return Model(name="a", baseline=numbers[0], versions=versions, **values)


def host(machine: str, state: str = "ready", alive: bool = True, **versions: str) -> HostSeen:
    seen = {int(name.removeprefix("v")): VersionSeen(found, error="why") for name, found in versions.items()}
    return HostSeen(f"{machine}/h", alive, state=state, machine=machine, models={"a": seen})


def test_versions_with_a_role_are_on_all_machines_of_their_model_and_others_where_they_are_placed() -> None:
    placed = placement(replica("a", "x", "1"), replica("a", "y", "2"), replica("a", "z", "3"))
    found = model(1, 2, 3, 4, arms=(BucketRange(version=2, offset=0, weight=10),))
    assert placed.target(found, 1) == placed.target(found, 2) == {"x", "y", "z"}
    assert placed.target(found, 3) == {"z"}
    assert placed.models["a"].has_versions_apart
    assert not placement(replica("a", "x", "1"), replica("a", "x", "2")).models["a"].has_versions_apart
    # Its number has no entry.
    assert placed.target(found, 4) == {"x", "y", "z"}
    assert placed.target(model(1).change(name="b"), 1) is None


def test_only_hosts_of_placed_machines_are_to_have_a_version() -> None:
    hosts = [host("x"), host("y"), HostSeen("own", alive=True)]
    there, elsewhere = placement(replica("a", "y")), placement(replica("b", "y"))
    assert [seen.name for seen in hosts_for(hosts, there, model(1), 1)] == ["y/h", "own"]
    assert hosts_for(hosts, None, model(1), 1) is hosts
    assert hosts_for(hosts, elsewhere, model(1), 1) is hosts
    grouped = by_machine(hosts)
    assert [seen.name for seen in judging_hosts(grouped, there, model(1), 1) or ()] == ["own", "y/h"]
    assert judging_hosts(grouped, elsewhere, model(1), 1) is None


def test_version_that_moves_is_judged_where_it_is_ready() -> None:
    moved = changed(placement(replica("a", "x")), placement(replica("a", "y")), {"a": model(1)}, ["x", "y"])
    there = by_machine([host("x", v1="ready"), host("y", v1="failed")])
    assert [seen.name for seen in judging_hosts(there, moved, model(1), 1) or ()] == ["x/h"]
    # A version that was deployed meanwhile is to be ready on all of them.
    assert [seen.name for seen in judging_hosts(there, moved, model(1, 2, candidate=2), 2) or ()] == ["x/h", "y/h"]
    nowhere = by_machine([host("x", v1="loading"), host("y", v1="failed")])
    assert [seen.name for seen in judging_hosts(nowhere, moved, model(1), 1) or ()] == ["x/h", "y/h"]


def test_machines_keep_what_they_have_until_the_move_ends_also_if_the_placement_changes_again() -> None:
    models = {"a": model(1, 2, last_good=2)}
    first = changed(None, placement(replica("a", "x")), models, ["x", "y", "z"])
    assert first.models["a"].leaving == {1: ("y", "z"), 2: ("y", "z")}
    assert first.wanted(models["a"], 1) == {"x", "y", "z"}
    second = changed(first, placement(replica("a", "y")), models, ["x", "y", "z"])
    assert second.models["a"].leaving[1] == ("x", "z")
    # A version that is deployed during the move gets its part of the requests on all machines.
    later = models["a"].with_version(models["a"].versions[1].model_copy(update={"number": 3})).change(candidate=3)
    assert second.wanted(later, 3) == {"x", "y", "z"}
    assert changed(second, placement(replica("b", "x")), models, ["x"]).models["b"].leaving == {}


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ([host("x", v1="ready")], "y: has no host that is ready"),
        ([host("y", state="draining", v1="ready")], "y: has no host that is ready"),
        ([host("y", alive=False, v1="ready")], "y: has no host that is ready"),
        ([host("y", v2="ready")], "y/h: a/1 is not there yet"),
        ([host("y", v1="failed")], "y/h: a/1 is failed why"),
        ([host("y", v1="ready")], None),
        # A version that was broken before need not work afterwards.
        ([host("x", v1="failed"), host("y", v1="failed")], None),
        # Its error says that it is tried again.
        ([host("x", v1="loading"), host("y", v1="failed")], None),
    ],
)
def test_move_ends_once_the_new_machines_are_ready(there: list[HostSeen], expected: str | None) -> None:
    moved = changed(placement(replica("a", "x")), placement(replica("a", "y")), {"a": model(1)}, ["x", "y"])
    assert moved.models["a"].leaving == {1: ("x",)}
    assert waits_for(moved.models["a"], model(1), there) == expected


def test_move_waits_for_versions_that_were_deployed_during_it() -> None:
    moved = changed(placement(replica("a", "x")), placement(replica("a", "y")), {"a": model(1)}, ["x", "y"])
    placed = moved.models["a"]
    # The machine is down while the first version is replaced.
    versions = model(1, 2, 3).versions
    stopped = versions[1].model_copy(update={"state": State.STOPPED})
    found = Model(name="a", baseline=3, last_good=2, versions={**versions, 1: stopped})
    assert not stopped.desired
    assert placed.leaving == {1: ("x",)}
    old = host("x", v2="ready", v3="ready")
    assert waits_for(placed, found, [old]) == "y: has no host that is ready"
    assert waits_for(placed, found, [old, host("y", v2="ready", v3="loading")]) == "y/h: a/3 is loading why"
    assert waits_for(placed, found, [old, host("y", v2="ready", v3="ready")]) is None
    # Broken where it was as well.
    assert waits_for(placed, found, [host("x", v2="ready", v3="failed"), host("y", v2="ready")]) is None


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "schema None"),
        ({"schema": "placement/1"}, "0 replicas"),
        ({"schema": "placement/1", "replicas": 5}, "replicas 5, expected a list"),
        ({"schema": "placement/1", "replicas": [5]}, r"replicas\[0\]: 5, expected an object"),
        ({"schema": "placement/1", "replicas": [{"model": "a"}]}, r"replicas\[0\]: machine None"),
        ({"schema": "placement/1", "replicas": [replica("a", "x", "seven")]}, "version 'seven'"),
        ({"schema": "placement/1", "replicas": [replica("a", "x", "0")]}, r"replicas\[0\]: version"),
        ({"schema": "placement/1", "replicas": [replica("a", "x y")]}, r"replicas\[0\]: machine 'x y'"),
        ({"schema": "placement/1", "replicas": [replica("-", "x")]}, "model '-'"),
        ({"schema": "placement/1", "replicas": [replica("a", "x", cores=-1)]}, r"replicas\[0\]: cores"),
        (
            {"schema": "placement/1", "replicas": [replica("a", "x", cores=1), replica("a", "x", cores=2)]},
            "a is on x twice",
        ),
        (
            {"schema": "placement/1", "replicas": [replica("a", "x")], "unplaced": [{"name": "b", "why": "memory"}]},
            r"model 'b' has no place \(memory\)",
        ),
    ],
)
def test_invalid_placements_are_refused(data: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        read_placement(data, 0.0, 0.0)

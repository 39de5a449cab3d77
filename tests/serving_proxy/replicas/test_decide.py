# SPDX-License-Identifier: Apache-2.0
"""Which replicas are started, drained and removed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from serving_proxy.replicas.decide import HUNG_S, NO_ROOM_S, SETTLED_S, decide
from serving_proxy.replicas.records import ClusterSeen, NodeSeen, ReplicaSeen, read_cluster


def seen(number: int, **changes: Any) -> ReplicaSeen:
    """Return a replica that is ready, on a node of its own."""
    ready = ReplicaSeen(f"replica-{number}", answers=True, node=f"n{number}", spec="s", state="ready", ready_s=60.0)
    return replace(ready, **changes)


def kinds(wanted: int, *replicas: ReplicaSeen, nodes: tuple[NodeSeen, ...] = ()) -> list[str]:
    """Return what is done, as `create replica-0`."""
    found = decide(wanted, "s", ClusterSeen(nodes, replicas, {}), 30.0)
    return [f"{action.kind} {action.name}" for action in found]


def settle(wanted: int, replicas: list[ReplicaSeen], nodes: tuple[NodeSeen, ...] = ()) -> tuple[list[ReplicaSeen], int]:
    """Do what is decided until nothing is left to do; return the replicas, and how few were ready at any time."""
    least = sum(found.is_ready for found in replicas)
    for _ in range(100):
        actions = decide(wanted, "s", ClusterSeen(nodes, tuple(replicas), {}), 30.0)
        if not actions and all(found.is_ready and found.ready_s >= SETTLED_S for found in replicas):
            return replicas, least
        # What was started in the step before is ready now, and what drained has ended.
        replicas = [
            replace(found, state="ready", drained=found.drains, ready_s=found.ready_s + 2.0) for found in replicas
        ]
        for action in actions:
            if action.kind == "create":
                replicas.append(seen(int(action.name[8:]), node=f"new-{action.name}", state="starting", ready_s=0.0))
            elif action.kind == "remove":
                replicas = [found for found in replicas if found.name != action.name]
            else:
                replicas = [replace(found, drains=True) if found.name == action.name else found for found in replicas]
        assert len({found.name for found in replicas}) == len(replicas)
        least = min(least, sum(found.is_ready for found in replicas))
    raise AssertionError(f"{replicas}: never settles")


def test_missing_replicas_are_started_with_free_numbers() -> None:
    assert kinds(3, seen(1)) == ["create replica-0", "create replica-2"]
    assert kinds(2, seen(0), seen(1)) == []


def test_replicas_that_wait_for_a_node_are_not_started_twice() -> None:
    assert kinds(2, seen(0), ReplicaSeen("replica-1", spec="s", silent_s=600.0)) == []


def test_surplus_replicas_end_from_the_highest_number() -> None:
    assert kinds(1, seen(0), seen(1), seen(2)) == ["drain replica-2", "drain replica-1"]
    assert kinds(1, seen(0, state="loading"), seen(1)) == ["drain replica-0"]
    assert kinds(0, seen(0)) == ["drain replica-0"]


def test_surplus_replica_without_a_node_is_removed() -> None:
    waiting = ReplicaSeen("replica-1", spec="s", silent_s=5.0)
    assert kinds(1, seen(0), waiting) == ["remove replica-1"]
    assert kinds(0, waiting) == ["remove replica-1"]
    # One that has a node may have requests, and drains once it answers.
    assert kinds(0, replace(waiting, node="n1")) == []


def test_replica_that_waits_for_a_node_with_other_options_is_replaced() -> None:
    waiting = ReplicaSeen("replica-0", spec="old", silent_s=5.0)
    assert kinds(1, waiting) == ["remove replica-0", "create replica-1"]


def test_replica_of_an_earlier_driver_that_never_answers_is_replaced() -> None:
    silent = ReplicaSeen("replica-0", silent_s=HUNG_S - 1)
    assert kinds(1, silent) == kinds(0, silent) == []
    assert kinds(1, replace(silent, silent_s=HUNG_S + 1)) == ["remove replica-0", "create replica-1"]
    assert kinds(0, replace(silent, silent_s=HUNG_S + 1)) == ["remove replica-0"]


def test_drained_replicas_are_removed() -> None:
    assert kinds(1, seen(0), seen(1, drains=True, drained=True)) == ["remove replica-1"]
    assert kinds(1, seen(0), seen(1, drains=True)) == []


def test_replicas_with_other_options_are_replaced_one_by_one() -> None:
    assert kinds(2, seen(0, spec="old"), seen(1, spec="old")) == ["create replica-2"]
    waiting = (seen(0, spec="old"), seen(1, spec="old"), seen(2, state="loading"))
    assert kinds(2, *waiting) == []
    replicas, least = settle(3, [seen(number, spec="old") for number in range(3)])
    assert least == 3
    assert len(replicas) == 3
    assert {found.spec for found in replicas} == {"s"}


def test_without_room_for_one_more_an_old_replica_goes_first() -> None:
    waiting = ReplicaSeen("replica-2", silent_s=NO_ROOM_S + 1)
    assert kinds(2, seen(0, spec="old"), seen(1, spec="old"), waiting) == ["drain replica-0"]
    assert kinds(2, seen(0, spec="old", drains=True), seen(1, spec="old"), waiting) == []
    # The only replica stays: nothing would serve.
    assert kinds(1, seen(0, spec="old"), ReplicaSeen("replica-1", silent_s=NO_ROOM_S + 1)) == []


def test_a_new_replica_must_have_been_ready_before_an_old_one_ends() -> None:
    old = (seen(0, spec="old"), seen(1, spec="old"))
    assert kinds(2, *old, seen(2, ready_s=SETTLED_S - 1)) == []
    assert kinds(2, *old, seen(2, ready_s=SETTLED_S)) == ["drain replica-0"]


def test_replicas_of_a_draining_node_are_replaced_before_they_end() -> None:
    drains = NodeSeen("n0", "10.0.0.1", 4.0, drains=True)
    assert kinds(2, seen(0), seen(1), nodes=(drains,)) == ["create replica-2"]
    replicas, least = settle(2, [seen(0), seen(1)], nodes=(drains,))
    assert least == 2
    assert {found.node for found in replicas} == {"n1", "new-replica-2"}


def test_replicas_end_in_time_before_their_node_does() -> None:
    drains = NodeSeen("n0", "10.0.0.1", 4.0, drains=True, left_s=20.0)
    assert kinds(1, seen(0), nodes=(drains,)) == ["create replica-1", "drain replica-0"]


def test_replica_that_hangs_is_started_again() -> None:
    assert kinds(1, seen(0, answers=False, silent_s=HUNG_S + 1)) == ["restart replica-0"]
    assert kinds(1, seen(0, answers=False, silent_s=HUNG_S - 1)) == []


@pytest.mark.parametrize("wanted", [1, 2, 5])
def test_new_options_and_another_number_at_the_same_time(wanted: int) -> None:
    replicas, least = settle(wanted, [seen(number, spec="old") for number in range(3)])
    assert len(replicas) == wanted
    assert least >= min(wanted, 3)


def test_cluster_is_read_from_the_driver() -> None:
    told = {
        "nodes": [{"id": "n", "address": "10.0.0.1", "cpus": 4.0, "drains": True, "left_s": None}],
        "replicas": [
            {"name": "replica-10", "answers": True},
            {"name": "replica-9", "servers": ["http://p"], "later": 1},
            {"name": "replica-x"},
        ],
        "faults": {"replica-3": "no module"},
    }
    found = read_cluster(told)
    assert [replica.name for replica in found.replicas] == ["replica-9", "replica-10"]
    assert found.replicas[0].servers == ("http://p",)
    assert found.nodes == (NodeSeen("n", "10.0.0.1", 4.0, drains=True),)
    assert found.faults == told["faults"]

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from serving_proxy.replicas.records import ClusterSeen, ReplicaSeen
from serving_proxy.replicas.views import replicas_view

CLUSTER = ClusterSeen(
    (),
    (
        ReplicaSeen("replica-0", answers=True, state="ready", spec="s"),
        ReplicaSeen("replica-1", answers=True, state="ready", spec="old", drains=True),
        ReplicaSeen("replica-2"),
    ),
    {},
)


def test_states_of_replicas() -> None:
    view = replicas_view(2, "--replicas", None, "s", CLUSTER)
    assert [(found.state, found.current) for found in view.replicas] == [
        ("ready", True),
        ("draining", False),
        ("waiting", False),
    ]
    assert view.ready == 1


def test_nothing_is_known_while_the_engine_does_not_answer() -> None:
    view = replicas_view(2, "--replicas", "no answer", "s", CLUSTER)
    assert {found.state for found in view.replicas} == {"unknown"}
    assert view.ready == 0
    assert replicas_view(2, "--replicas", None, "s", None).replicas == []

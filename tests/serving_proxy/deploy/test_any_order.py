# SPDX-License-Identifier: Apache-2.0
"""Invariants that hold for operations in any order and hosts in any state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from helpers.proxies.lifecycle_records import NOW, admitted, host, settled
from serving_proxy.deploy import changes
from serving_proxy.deploy.adoption import adopt
from serving_proxy.deploy.changes import Change
from serving_proxy.deploy.deployment import Deployment, deploy
from serving_proxy.deploy.desired_state import HostSettings, render
from serving_proxy.deploy.reconcile import Snapshot, reconcile, taken_by_others
from serving_proxy.errors import PreconditionError, ProxyError
from serving_proxy.experiments.traffic import BUCKETS, overlapping
from serving_proxy.records.hosts import HostSeen
from serving_proxy.records.models import Model
from serving_proxy.records.states import GATED, LEGAL, State

NAMES = st.sampled_from(["a", "b"])
NUMBERS = st.integers(1, 5)
WEIGHTS = st.integers(0, BUCKETS)
HOST_STATES = st.sampled_from(["loading", "warming", "ready", "ready", "ready", "failed: broken"])


class Lifecycle(RuleBasedStateMachine):
    """Two models in one layer, and one host."""

    def __init__(self) -> None:
        super().__init__()
        self.models = {name: Model(name=name, layer="shared") for name in ("a", "b")}
        self.desired: dict[str, Any] = {"models": {}}
        self.served: set[tuple[str, int]] = set()

    def apply(self, name: str, verb: Callable[[Model], Change]) -> None:
        """Apply a verb; if it is not refused, repeating it must be harmless."""
        try:
            change = verb(self.models[name])
        except ProxyError:
            return
        try:
            assert verb(change.model).model == change.model
        except PreconditionError:
            assert verb is changes.roll_back, "what was rolled back cannot be rolled back again"
        self.check_transitions(name, change)
        self.models[name] = change.model

    def check_transitions(self, name: str, change: Change) -> None:
        state = {number: version.state for number, version in self.models[name].versions.items()}
        for note in change.notes:
            if note.kind == "state" and note.model == name and note.version is not None:
                assert State(note.data["to"]) in LEGAL[state.get(note.version, State.NEW)]
                state[note.version] = State(note.data["to"])

    def taken(self, name: str) -> Any:
        return taken_by_others(self.models, self.models[name])

    @rule(name=NAMES, number=NUMBERS, traffic=st.none() | WEIGHTS, shadow=st.none() | WEIGHTS, label=st.booleans())
    def deploy(self, name: str, number: int, traffic: int | None, shadow: int | None, label: bool) -> None:
        labels = ("canary",) if label else ()
        source = f"/models/{number}"
        asked = Deployment(source=source, number=number, traffic=traffic, shadow=shadow, labels=labels)
        self.apply(name, lambda model: deploy(model, asked, self.taken(name), NOW)[0])

    @rule(name=NAMES, number=NUMBERS, passes=st.booleans())
    def gates(self, name: str, number: int, passes: bool) -> None:
        version = self.models[name].versions.get(number)
        if version is not None and version.state in GATED:
            model = self.models[name]
            self.models[name] = (
                admitted(model, number) if passes else changes.move(model, number, State.FAILED, NOW, "bad").model
            )

    @rule(name=NAMES, number=st.none() | NUMBERS)
    def undeploy(self, name: str, number: int | None) -> None:
        self.apply(name, lambda model: changes.undeploy(model, number, NOW))

    @rule(name=NAMES, weights=st.dictionaries(NUMBERS, WEIGHTS, max_size=3))
    def traffic(self, name: str, weights: dict[int, int]) -> None:
        self.apply(name, lambda model: changes.set_traffic(model, weights, self.taken(name)))

    @rule(name=NAMES, number=NUMBERS, goal=WEIGHTS, seconds=st.sampled_from([0.0, 10.0, 3600.0]))
    def ramp(self, name: str, number: int, goal: int, seconds: float) -> None:
        self.apply(name, lambda model: changes.start_ramp(model, number, goal, seconds, self.taken(name)))

    @rule(name=NAMES, number=NUMBERS)
    def promote(self, name: str, number: int) -> None:
        self.apply(name, lambda model: changes.promote(model, number))

    @rule(name=NAMES)
    def roll_back(self, name: str) -> None:
        before = self.models[name]
        self.apply(name, changes.roll_back)
        # Never a success that changes nothing, but for one that is under way.
        assert self.models[name] != before or self.models[name].going_back or not self.rolls_back(name)

    def rolls_back(self, name: str) -> bool:
        try:
            changes.roll_back(self.models[name])
        except ProxyError:
            return False
        return True

    @rule(name=NAMES, paused=st.booleans())
    def pause(self, name: str, paused: bool) -> None:
        self.apply(name, lambda model: changes.pause(model, paused))

    @rule(data=st.data(), seconds=st.sampled_from([0.0, 3.0, 5000.0]))
    def step(self, data: st.DataObject, seconds: float) -> None:
        states: dict[str, dict[int, Any]] = {}
        for name, model in self.desired["models"].items():
            states[name] = {int(number): data.draw(HOST_STATES) for number in model["versions"]}
        self.look([self.host(states)], seconds)

    @rule()
    @precondition(lambda self: self.desired["models"])
    def hosts_are_gone(self) -> None:
        self.look([], 0.0)

    def host(self, states: dict[str, dict[int, str]]) -> HostSeen:
        models = {name: host(state, model=name).models[name] for name, state in states.items()}
        return host({}, models=models)

    def look(self, hosts: list[HostSeen], seconds: float) -> None:
        clocks = {name: dict.fromkeys(model.versions, seconds) for name, model in self.models.items()}
        snapshot = Snapshot(self.models, hosts, NOW, clocks)
        plan = reconcile(snapshot)
        assert reconcile(snapshot) == plan
        # A proxy that loses its database reads back what hosts are to serve, to the last word.
        adopted = adopt(plan.desired, NOW)
        assert adopted.left == ()
        assert render(adopted.models, HostSettings()) == plan.desired
        for name, model in plan.changed.items():
            notes = tuple(note for note in plan.notes if note.model == name)
            self.check_transitions(name, Change(model, notes))
        self.models = {**self.models, **plan.changed}
        self.desired = plan.desired

    @invariant()
    def buckets_are_disjoint(self) -> None:
        assert not overlapping(arm for model in self.models.values() for arm in model.arms)

    @invariant()
    def roles_are_consistent(self) -> None:
        for model in self.models.values():
            for number in model.weights:
                assert number in model.versions
                assert number != model.baseline
                assert not model.versions[number].held
            for number in (model.baseline, model.candidate, model.last_good):
                assert number is None or number in model.versions
            assert {*model.labels.values(), *model.published.values()} <= set(model.versions)

    @invariant()
    def hosts_can_read_it(self) -> None:
        for model in self.desired["models"].values():
            there = {int(number) for number in model["versions"]}
            assert model["baseline"] in there
            assert model["versions"][str(model["baseline"])].get("traffic", True)
            assert {arm["version"] for arm in model["routing"]["arms"]} <= there
            assert set(model.get("labels", {}).values()) <= there
            assert {target["version"] for target in model.get("shadow", ())} <= there
            assert all(version["path"] for version in model["versions"].values())

    def teardown(self) -> None:
        for model in self.models.values():
            settled(model, seconds=10_000.0)


Lifecycle.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestLifecycle = Lifecycle.TestCase

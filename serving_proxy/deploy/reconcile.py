# SPDX-License-Identifier: Apache-2.0
"""One step of the control loop as a pure function from a snapshot to the next models and `desired.json`.

The same snapshot always gives the same result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from serving_proxy.deploy.changes import Change, arms_data, move, reassign, stop, without_traffic
from serving_proxy.deploy.desired_state import HostSettings, render
from serving_proxy.deploy.placing import by_machine, judging_hosts
from serving_proxy.deploy.version_policy import labels_to_publish
from serving_proxy.errors import ExhaustedError
from serving_proxy.experiments import ramps
from serving_proxy.experiments.traffic import to_percent
from serving_proxy.records.hosts import HostSeen, Seen, held_anywhere, observe
from serving_proxy.records.models import BucketRange, Model, Note, Version
from serving_proxy.records.placement import Placement
from serving_proxy.records.states import SERVED, State, steps_between


@dataclass(frozen=True)
class Snapshot:
    """All inputs of a step.

    Attributes
    ----------
    models : dict of str to Model
    hosts : sequence of HostSeen
    now : float [s since 1970]
    seconds : dict of str to dict of int to float [s]
        By model and version: how long its ramp has run since its record was written.
    settings : HostSettings
    placement : Placement or None
        None: all machines have all models.
    """

    models: Mapping[str, Model]
    hosts: Sequence[HostSeen]
    now: float
    seconds: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    settings: HostSettings = field(default_factory=HostSettings)
    placement: Placement | None = None

    @cached_property
    def _by_machine(self) -> dict[str, list[HostSeen]]:
        return by_machine(self.hosts)

    def judging_hosts(self, model: Model, number: int) -> Sequence[HostSeen] | None:
        """Return the hosts whose reports decide about the state of a version; None: all."""
        return None if self.placement is None else judging_hosts(self._by_machine, self.placement, model, number)

    def machines_for(self, model: Model, number: int) -> str:
        """Return the machines that are to have a version as text."""
        machines = None if self.placement is None else self.placement.wanted(model, number)
        return "any machine" if machines is None else " or ".join(sorted(machines))


@dataclass(frozen=True)
class Reconciliation:
    """The result of a step.

    Attributes
    ----------
    changed : dict of str to Model
        The models that have changed.
    notes : tuple of Note
    desired : dict
        `desired.json` without its generation.
    """

    changed: Mapping[str, Model]
    notes: tuple[Note, ...]
    desired: dict[str, Any]


def reconcile(snapshot: Snapshot) -> Reconciliation:
    """Move every model one step forward."""
    models = dict(snapshot.models)
    notes: list[Note] = []
    for name in sorted(models):
        taken = taken_by_others(models, models[name])
        change = step(models[name], snapshot, taken)
        models[name] = change.model
        notes += change.notes
    changed = {name: model for name, model in models.items() if model != snapshot.models[name]}
    return Reconciliation(changed, tuple(notes), render(models, snapshot.settings, snapshot.placement))


def taken_by_others(models: Mapping[str, Model], model: Model) -> tuple[BucketRange, ...]:
    """Return the buckets of a model's layer that other models have."""
    return tuple(
        arm
        for other in models.values()
        if other.name != model.name and other.layer_name == model.layer_name
        for arm in other.arms
    )


def step(model: Model, snapshot: Snapshot, taken: tuple[BucketRange, ...]) -> Change:
    """Move one model a step forward: states, promotion, labels, ramps."""
    change = Change(model)
    for number in model.versions:
        change = change.then(_update_state(change.model, number, snapshot))
    change = change.then(_replace_failed_baseline(change.model))
    change = change.then(_promote_candidate(change.model, snapshot.now))
    change = change.then(Change(_publish_labels(change.model)))
    return change.then(_advance_ramps(change.model, snapshot.seconds.get(model.name, {}), taken))


def _update_state(model: Model, number: int, snapshot: Snapshot) -> Change:
    """Set a version's state from the hosts' reports."""
    version = model.versions[number]
    if version.state == State.DRAINING:
        if held_anywhere(snapshot.hosts, model.name, number):
            return Change(model)
        return move(model, number, State.STOPPED, snapshot.now)
    if not version.desired:
        return Change(model)
    there = snapshot.judging_hosts(model, number)
    seen = observe(snapshot.hosts if there is None else there, model.name, number, version.path)
    if there is not None and not any(host.alive for host in there):
        seen = Seen(State.STOPPED, f"no host is running on {snapshot.machines_for(model, number)}")
    if seen.state == State.STOPPED:
        # A failed version that no host knows waits for a host, as all others do.
        return _move_to(model, version, State.LOADING, seen.reason, snapshot.now)
    return _move_to(model, version, seen.state, seen.reason, snapshot.now)


def _move_to(model: Model, version: Version, state: State, reason: str, now: float) -> Change:
    change = Change(model)
    for step in steps_between(version.state, state):
        change = change.then(move(change.model, version.number, step, now, reason if step == state else ""))
    found = change.model.versions[version.number]
    if found.reason != reason:
        change = change.then(Change(model.with_version(found.model_copy(update={"reason": reason}))))
    return change


def _replace_failed_baseline(model: Model) -> Change:
    """Make another version the baseline if no host ever got as far as trying the present one."""
    if (
        model.baseline is not None
        and (baseline := model.versions[model.baseline])
        and (baseline.active or baseline.desired)
    ):
        return Change(model)
    able = [version for version in model.versions.values() if version.state in SERVED and not version.rejected]
    if not able:
        return Change(model)
    heir = max(
        able, key=lambda version: (version.number == model.last_good, version.state == State.READY, version.number)
    )
    changed = without_traffic(model, heir.number).with_version(heir.model_copy(update={"held": False, "shadow": 0}))
    message = f"{model.name}/{heir.number}: is the baseline, as the previous one failed"
    note = Note(kind="baseline", message=message, model=model.name, version=heir.number)
    return Change(changed.change(baseline=heir.number), (note,))


def _promote_candidate(model: Model, now: float) -> Change:
    """Make a candidate the baseline once it is ready, or at once in a rollback; drop a candidate that has failed."""
    number = model.candidate
    if number is None:
        return Change(model)
    version = model.versions[number]
    if not version.desired and not version.active:
        return Change(model.change(candidate=None, going_back=False))
    if version.state == State.FAILED:
        message = f"{model.name}/{number}: not promoted, {version.reason or 'it failed'}"
        note = Note(kind="promote", message=message, model=model.name, version=number)
        return Change(model.change(candidate=None, going_back=False), (note,))
    # A rollback does not wait: the present baseline may be what keeps hosts from loading the old one. Each host stays
    # with the baseline that it has until the wanted one is ready there.
    able = version.state in SERVED if model.going_back else version.state == State.READY
    return _make_baseline(model, version, now) if able else Change(model)


def _make_baseline(model: Model, version: Version, now: float) -> Change:
    old = None if model.baseline is None else model.versions[model.baseline]
    back, kept = model.going_back, model.last_good
    changed = without_traffic(model, version.number).change(baseline=version.number, candidate=None, going_back=False)
    changed = changed.with_version(version.model_copy(update={"held": False, "rejected": False, "shadow": 0}))
    if back:
        changed = changed.change(last_good=version.number)
        if old is not None:
            changed = changed.with_version(old.model_copy(update={"held": True, "rejected": True, "shadow": 0}))
    elif old is not None and old.state == State.READY:
        changed = changed.change(last_good=old.number)
        changed = changed.with_version(old.model_copy(update={"held": True, "shadow": 0}))
    elif kept == version.number:
        changed = changed.change(last_good=None)
    message = f"{model.name}/{version.number}: is the baseline" + (f" after {old.number}" if old is not None else "")
    note = Note(kind="baseline", message=message, model=model.name, version=version.number)
    change = Change(changed, (note,))
    return change.then(_unload_former_baseline(change.model, kept, now))


def _unload_former_baseline(model: Model, number: int | None, now: float) -> Change:
    """Unload the former last good version, unless something else needs it."""
    if number is None or number in {model.baseline, model.last_good} or number not in model.versions:
        return Change(model)
    version = model.versions[number]
    used = number in model.labels.values() or number in model.weights or not version.held or version.rejected
    if used or version.state not in SERVED | {State.FAILED}:
        return Change(model)
    return stop(model, number, now, "another version is the last good baseline")


def _publish_labels(model: Model) -> Model:
    ready = [number for number, version in model.versions.items() if version.state == State.READY]
    published = labels_to_publish(model.labels, model.published, ready)
    return model if published == model.published else model.change(published=published)


def _advance_ramps(model: Model, seconds: Mapping[int, float], taken: tuple[BucketRange, ...]) -> Change:
    """Write the weights that ramps have reached; the record changes only if a weight does."""
    if model.paused or not model.ramps:
        return Change(model)
    running = {ramp.version for ramp in model.ramps if model.versions[ramp.version].state == State.READY}
    later = [
        ramps.advance(ramp, seconds.get(ramp.version, 0.0)) if ramp.version in running else ramp for ramp in model.ramps
    ]
    reached = {ramp.version: ramps.weight_at(ramp) for ramp in later if ramp.version in running}
    done = {ramp.version for ramp in later if ramp.version in running and ramps.finished(ramp)}
    weights = {number: weight for number, weight in (model.weights | reached).items() if weight}
    if weights == model.weights and not done:
        return Change(model)
    try:
        after = reassign(model, weights, taken)
    except ExhaustedError as error:
        message = f"{model.name}: ramp ended, {error}"
        return Change(model.change(ramps=()), (Note(kind="ramp", message=message, model=model.name),))
    after = after.change(ramps=tuple(ramp for ramp in later if ramp.version not in done))
    notes = [_ramp_note(after, number, weight, number in done) for number, weight in sorted(reached.items())]
    return Change(after, tuple(notes))


def _ramp_note(model: Model, number: int, weight: int, done: bool) -> Note:
    message = f"{model.name}/{number}: {to_percent(weight):g} % of the traffic" + (", the ramp has ended" * done)
    return Note(kind="ramp", message=message, model=model.name, version=number, data={"arms": arms_data(model)})

# SPDX-License-Identifier: Apache-2.0
"""Changes to a model: pure functions from one record to the next, with notes for the event log.

Every change may be repeated: if it has been made already, the model is returned as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from serving_proxy.errors import InvalidError, NotFoundError, PreconditionError
from serving_proxy.experiments.traffic import BUCKETS, assign_buckets, to_percent
from serving_proxy.records.models import BucketRange, Model, Note, Ramp, Version
from serving_proxy.records.states import GATED, State, check


@dataclass(frozen=True)
class Change:
    """A model after a change, and the notes for the event log."""

    model: Model
    notes: tuple[Note, ...] = ()

    def then(self, other: Change) -> Change:
        """Return the later change with the notes of both."""
        return Change(other.model, self.notes + other.notes)


def move(model: Model, number: int, state: State, now: float, reason: str = "", failure: str = "") -> Change:
    """Change the state of a version, if the table of states permits it.

    Parameters
    ----------
    failure : str
        Status that belongs to the reason, if the proxy refuses the version.
    """
    version = model.versions[number]
    check(version.state, state)
    changed = version.model_copy(update={"state": state, "since": now, "reason": reason, "failure": failure})
    message = f"{model.name}/{number}: {state}" + (f", {reason}" if reason else "")
    data = {"from": version.state.value, "to": state.value}
    note = Note(kind="state", message=message, model=model.name, version=number, data=data)
    return Change(model.with_version(changed), (note,))


def stop(model: Model, number: int, now: float, reason: str = "") -> Change:
    """Take a version out: it drains if hosts may have it, and is stopped at once if they cannot."""
    version = model.versions[number]
    if version.state in {State.DRAINING, State.STOPPED}:
        return Change(model)
    never_there = version.state in GATED or version.path is None
    changed = without_traffic(model, number)
    changed = changed.with_version(version.model_copy(update={"held": False, "shadow": 0}))
    labels = {label: target for label, target in changed.labels.items() if target != number}
    published = {label: target for label, target in changed.published.items() if target != number}
    changed = changed.change(labels=labels, published=published)
    for role in ("candidate", "last_good", "baseline"):
        if getattr(changed, role) == number:
            changed = changed.change(**{role: None})
    if changed.candidate is None:
        changed = changed.change(going_back=False)
    return move(changed, number, State.STOPPED if never_there else State.DRAINING, now, reason)


def without_traffic(model: Model, number: int) -> Model:
    """Remove a version's arms and ramp."""
    arms = tuple(arm for arm in model.arms if arm.version != number)
    ramps = tuple(ramp for ramp in model.ramps if ramp.version != number)
    return model.change(arms=arms, ramps=ramps)


def undeploy(model: Model, number: int | None, now: float) -> Change:
    """Take out one version, or all of them.

    Raises
    ------
    NotFoundError, PreconditionError
        There never was such a version, or it is the baseline and other versions are deployed.
    """
    if number is not None and number not in model.versions:
        raise NotFoundError(f"{model.name}/{number}: not deployed, expected one of {list_versions(model)}")
    others = [version.number for version in model.versions.values() if version.active and version.number != number]
    if number is not None and number == model.baseline and others:
        raise PreconditionError(
            f"{model.name}/{number}: is the baseline of {list_versions(model, others)}, expected another version to be "
            "promoted first, or the whole model to be undeployed"
        )
    change = Change(model)
    for chosen in list(model.versions) if number is None else [number]:
        change = change.then(stop(change.model, chosen, now, "undeployed"))
    return change


def set_traffic(model: Model, weights: Mapping[int, int], taken: Iterable[BucketRange]) -> Change:
    """Split the traffic; the share that is not named goes to the baseline.

    Raises
    ------
    NotFoundError, PreconditionError, InvalidError, ExhaustedError
        A version does not exist or is being taken out, the weights do not add up, or the layer is full.
    """
    for number in weights:
        usable(model, number)
    total = sum(weights.values())
    if model.baseline in weights and total != BUCKETS:
        raise InvalidError(f"traffic of {model.name}: {to_percent(total):g} % in all, expected 100 %")
    if total > BUCKETS:
        raise InvalidError(f"traffic of {model.name}: {to_percent(total):g} % in all, expected at most 100 %")
    arms = {number: weight for number, weight in weights.items() if number != model.baseline and weight}
    changed = reassign(model, arms, taken).change(ramps=())
    if changed == model:
        return Change(model)
    split = ", ".join(f"{number}: {to_percent(weight):g} %" for number, weight in sorted(changed.weights.items()))
    message = f"{model.name}: traffic {split or 'to the baseline only'}"
    return Change(
        changed, (Note(kind="traffic", message=message, model=model.name, data={"arms": arms_data(changed)}),)
    )


def reassign(model: Model, weights: Mapping[int, int], taken: Iterable[BucketRange]) -> Model:
    """Set the weights of versions; a version that gets traffic is no longer held."""
    changed = model.change(arms=assign_buckets(weights, model.arms, taken))
    for number in weights:
        version = changed.versions[number]
        if version.held or version.rejected:
            changed = changed.with_version(version.model_copy(update={"held": False, "rejected": False}))
    return changed


def start_ramp(model: Model, number: int, target: int, seconds: float, taken: Iterable[BucketRange]) -> Change:
    """Change a version's weight to `target` over `seconds`.

    Raises
    ------
    NotFoundError, PreconditionError, InvalidError, ExhaustedError
        As in `set_traffic`, or the version is the baseline.
    """
    usable(model, number)
    if number == model.baseline:
        raise PreconditionError(f"{model.name}/{number}: is the baseline, expected another version")
    current = model.weights.get(number, 0)
    running = {ramp.version: ramp for ramp in model.ramps}
    before = running.pop(number, None)
    if before is not None and (before.target, before.seconds) == (target, seconds):
        return Change(model)
    kept = tuple(running.values())
    if current == target:
        return Change(model.change(ramps=kept))
    # Reserve buckets for the final weight now, so that the ramp cannot run out of them half-way.
    goals = model.weights | {ramp.version: max(ramp.target, model.weights.get(ramp.version, 0)) for ramp in kept}
    whole = reassign(model, goals | {number: max(target, current)}, taken)
    if seconds <= 0:
        weights = model.weights | {number: target}
        changed = reassign(model, {version: weight for version, weight in weights.items() if weight}, taken).change(
            ramps=kept
        )
        how = "at once"
    else:
        ramp = Ramp(version=number, start=current, target=target, seconds=seconds)
        version = whole.versions[number]
        changed = model.with_version(version).change(ramps=(*kept, ramp))
        how = f"over {seconds:g} s"
    message = f"{model.name}/{number}: from {to_percent(current):g} to {to_percent(target):g} % {how}"
    return Change(changed, (Note(kind="ramp", message=message, model=model.name, version=number),))


def promote(model: Model, number: int) -> Change:
    """Make a version the baseline as soon as it is ready."""
    usable(model, number)
    if number == model.baseline:
        return Change(model.change(candidate=None, going_back=False))
    if number == model.candidate and not model.going_back:
        return Change(model)
    note = Note(
        kind="promote",
        message=f"{model.name}/{number}: becomes the baseline once it is ready",
        model=model.name,
        version=number,
    )
    if model.policy is not None:
        # Otherwise the policy would follow a larger number again.
        for later in [version for version in model.versions.values() if version.active and version.number > number]:
            model = model.with_version(later.model_copy(update={"rejected": True}))
    return Change(model.change(candidate=number, going_back=False), (note,))


def choose(model: Model, numbers: Iterable[int]) -> Change:
    """Mark the versions that the model's version policy chooses: they serve requests that name them."""
    wanted = set(numbers)
    versions = {
        number: version
        if version.chosen == (number in wanted)
        else version.model_copy(update={"chosen": number in wanted})
        for number, version in model.versions.items()
    }
    return Change(model if versions == model.versions else model.change(versions=versions))


def roll_back(model: Model) -> Change:
    """Send all requests to the last good baseline: remove arms, ramps and a pending promotion.

    Raises
    ------
    PreconditionError
        There is nothing to roll back: no variant has traffic, and there is no earlier baseline, or it has failed.
    """
    baseline, good = model.baseline, model.last_good
    if baseline is None:
        raise PreconditionError(f"{model.name}: has no baseline, expected a deployed version")
    earlier = None if good is None or good == baseline else model.versions[good]
    back = earlier is not None and earlier.desired and earlier.state != State.FAILED
    pending = bool(model.arms or model.ramps or (model.candidate is not None and not model.going_back))
    if not back and not pending:
        raise PreconditionError(_nothing_to_roll_back(model, earlier))
    changed = model.change(arms=(), ramps=(), candidate=None, going_back=False)
    if back:
        changed = changed.change(candidate=good, going_back=True)
    elif earlier is None or not earlier.desired:
        changed = changed.change(last_good=baseline)
    if changed == model:
        return Change(model)
    target = good if back else baseline
    note = Note(kind="rollback", message=f"{model.name}: back to {target}", model=model.name, version=target)
    return Change(changed, (note,))


def _nothing_to_roll_back(model: Model, earlier: Version | None) -> str:
    baseline = model.baseline
    if earlier is None and model.last_good is None:
        return f"{model.name}: {baseline} is the first baseline, expected an earlier one"
    if earlier is None:
        return (
            f"{model.name}: was already rolled back to {baseline}, expected a newer baseline or a variant with traffic"
        )
    why = f" ({earlier.reason})" if earlier.reason else ""
    return (
        f"{model.name}: the last good baseline {earlier.number} is {earlier.state}{why}, expected one that is loaded; "
        f"{baseline} stays the baseline"
    )


def hold_epoch(model: Model, number: int, epoch: int | None) -> Change:
    """Hold a version at an epoch of its timeline; None: it follows the newest one again.

    Raises
    ------
    NotFoundError, PreconditionError
        It was never deployed, has failed, is being taken out, or follows no timeline.
    """
    version = usable(model, number)
    name = f"{model.name}/{number}"
    if version.settings.follow is None:
        raise PreconditionError(f"{name}: follows no timeline, expected a version that was deployed with --follow")
    if version.epoch == epoch:
        return Change(model)
    message = f"{name}: " + ("follows the newest epoch again" if epoch is None else f"held at epoch {epoch}")
    kind = "resume" if epoch is None else "rollback"
    note = Note(kind=kind, message=message, model=model.name, version=number, data={"epoch": epoch})
    return Change(model.with_version(version.model_copy(update={"epoch": epoch})), (note,))


def pause(model: Model, paused: bool) -> Change:
    """Set or clear the kill switch: while paused, all requests go to the baseline; arms and ramps stay as they are."""
    if model.paused == paused:
        return Change(model)
    message = f"{model.name}: " + ("paused, all requests go to the baseline" if paused else "experiments resumed")
    return Change(model.change(paused=paused), (Note(kind="pause", message=message, model=model.name),))


def usable(model: Model, number: int) -> Version:
    """Return a version that may get traffic.

    Raises
    ------
    NotFoundError, PreconditionError
        It was never deployed, has failed, or is being taken out.
    """
    version = model.versions.get(number)
    if version is None:
        raise NotFoundError(f"{model.name}/{number}: not deployed, expected one of {list_versions(model)}")
    if not version.active:
        why = f" ({version.reason})" if version.reason else ""
        raise PreconditionError(f"{model.name}/{number}: {version.state}{why}, expected a version that is deployed")
    return version


def list_versions(model: Model, numbers: Iterable[int] | None = None) -> str:
    """List the given versions, or all that are deployed, as text."""
    if numbers is None:
        numbers = [version.number for version in model.versions.values() if version.active]
    return ", ".join(str(number) for number in sorted(numbers)) or "none"


def arms_data(model: Model) -> list[dict[str, int]]:
    """Return the arms in their JSON form."""
    return [arm.model_dump() for arm in model.arms]

# SPDX-License-Identifier: Apache-2.0
"""The action that follows from a verdict: a changed model, or only an alert. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass

from serving_proxy.deploy.changes import Change, pause, promote, roll_back, without_traffic
from serving_proxy.errors import ProxyError
from serving_proxy.guard.verdict import Role, Ruling, Verdict
from serving_proxy.records.models import Model, Note
from serving_proxy.records.states import SERVED


@dataclass(frozen=True)
class ActionTaken:
    """The action for a verdict.

    Attributes
    ----------
    action : str
        `rollback`, `epoch`, `pause`, `promote` or `alert`.
    change : Change
        The model after it, with the verdict as its first note.
    """

    action: str
    change: Change


def action_for(model: Model, number: int, role: Role, verdict: Verdict, baseline_for_s: float) -> ActionTaken:
    """Return the action for a verdict that is `bad` or `promote`.

    Parameters
    ----------
    baseline_for_s : float [s]
        How long the baseline has been the baseline.
    """
    action, change, effect = _choose_action(model, number, role, verdict, baseline_for_s)
    message = f"{model.name}/{number}: {effect}; {verdict.reason}"
    data = {"ruling": verdict.ruling.value, "role": role.value, "action": action}
    note = Note(kind="guard", message=message, model=model.name, version=number, data=data)
    return ActionTaken(action, Change(change.model, (note, *change.notes)))


def judged_roles(model: Model) -> dict[int, Role]:
    """Return the versions that get requests or mirrored requests once they are ready, with the role in which each is
    judged.
    """
    found: dict[int, Role] = {}
    for number, version in model.versions.items():
        if not version.desired:
            continue
        if number == model.baseline:
            found[number] = Role.BASELINE
        elif number in model.weights and not model.paused:
            found[number] = Role.ARM
        elif version.shadow:
            found[number] = Role.SHADOW
    return found


def take_back(model: Model, number: int) -> Change:
    """Remove a variant's traffic and mirrored requests; it stays loaded, and no policy makes it the baseline."""
    changed = without_traffic(model, number)
    version = changed.versions[number]
    changed = changed.with_version(version.model_copy(update={"held": True, "rejected": True, "shadow": 0}))
    if changed.candidate == number:
        changed = changed.change(candidate=None, going_back=False)
    return Change(changed)


def _choose_action(
    model: Model, number: int, role: Role, verdict: Verdict, baseline_for_s: float
) -> tuple[str, Change, str]:
    settings, nothing = model.guard, Change(model)
    if verdict.ruling == Ruling.PROMOTE:
        return "promote", promote(model, number), "promoted"
    if settings.action == "alert":
        return "alert", nothing, "outside its limits"
    if role != Role.BASELINE:
        if settings.action == "pause" and role == Role.ARM:
            return "pause", pause(model, True), "experiments paused"
        return "rollback", take_back(model, number), "rolled back"
    if settings.action == "pause":
        return "alert", nothing, "outside its limits; not paused, as it is the baseline"
    good = None if model.last_good is None else model.versions[model.last_good]
    if good is None or good.number == number or good.state not in SERVED:
        return "alert", nothing, "outside its limits; not rolled back, as no earlier version is loaded"
    if baseline_for_s > settings.probation_s:
        return (
            "alert",
            nothing,
            f"outside its limits; not rolled back, as its probation is over ({good.number} is loaded)",
        )
    try:
        return "rollback", roll_back(model), f"rolled back to {good.number}"
    except ProxyError as error:
        return "alert", nothing, f"outside its limits; not rolled back: {error}"

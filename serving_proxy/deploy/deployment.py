# SPDX-License-Identifier: Apache-2.0
"""Deploy a version into a model's record: its number, its settings and its share of the traffic."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from pydantic import Field

from serving_proxy.deploy.changes import Change, move, reassign
from serving_proxy.errors import ExistsError, InvalidError, PreconditionError
from serving_proxy.records.models import BucketRange, Model, Note, Version, VersionNumber, VersionOptions, Weight
from serving_proxy.records.states import State

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_LABEL = re.compile(r"[A-Za-z0-9_]{1,64}")
# Given instead of a profile's file: any given profile is dropped, and the proxy measures one.
MEASURED = "auto"
_MOST_VERSIONS = 2**63 - 1
_KEPT_STOPPED = 50


class Deployment(VersionOptions):
    """A requested deployment.

    Attributes
    ----------
    number : int or None
        None: the name of the folder if that is a number, else one more than the largest number.
    stamp : str
        Stamp of the files as they are now.
    settings : Settings
        Settings that are not set keep their values.
    profile : str or None
        The file of a profile, or `auto` to have it measured; None: unchanged.
    traffic, shadow : int or None
        None: unchanged.
    labels : tuple of str
    layer, key_input : str or None
        None: unchanged.
    """

    source: str
    number: VersionNumber | None = None
    stamp: str = ""
    slo_p99_ms: float | None = Field(default=None, gt=0)
    traffic: Weight | None = None
    shadow: Weight | None = None
    labels: tuple[str, ...] = ()
    layer: str | None = None
    key_input: str | None = None

    @property
    def given_profile(self) -> str | None:
        """Return the file of the profile, if one is given."""
        return None if self.profile == MEASURED else self.profile

    def version_options(self) -> dict[str, Any]:
        """Return the options that the version's record keeps."""
        kept = {name: getattr(self, name) for name in VersionOptions.model_fields}
        return {**kept, "profile": self.given_profile}


def check_name(name: str) -> str:
    """Return a model's name, or raise `InvalidError`."""
    if not _NAME.fullmatch(name):
        raise InvalidError(
            f"model '{name[:150]}': expected letters, digits, '_', '-' and '.', at most 128, no leading '.'"
        )
    return name


def deploy(model: Model, asked: Deployment, taken: Iterable[BucketRange], now: float) -> tuple[Change, int]:
    """Add a version, or change the settings of one that is deployed.

    Parameters
    ----------
    model : Model
        A new model has no versions.
    asked : Deployment
    taken : iterable of BucketRange
        Buckets that other models of the layer have.
    now : float [s since 1970]

    Returns
    -------
    Change, int
        The change and the version's number. A version in state `new` waits for a job that takes it through the gates.

    Raises
    ------
    ExistsError
        The number belongs to another folder, or to files that have changed since it was deployed.
    InvalidError, PreconditionError, ExhaustedError
        A name is invalid, or the layer cannot change while there are arms, or the layer is full.
    """
    check_name(model.name)
    for label in asked.labels:
        if not _LABEL.fullmatch(label):
            raise InvalidError(f"label '{label[:80]}': expected letters, digits and '_', at most 64")
    model = _apply_routing(model, asked)
    number = choose_number(model, asked)
    before = model.versions.get(number)
    if before is not None and before.active:
        _check_same(model, before, asked)
        change = _change_settings(model, before, asked)
    else:
        change = _add_version(model, before, number, asked, now)
    change = _choose_baseline(change, number)
    return _apply_shares(change, number, asked, taken), number


def choose_number(model: Model, asked: Deployment) -> int:
    """Return the number that the deployed version gets, or has already."""
    if asked.number is not None:
        return asked.number
    name = PurePath(asked.source).name
    if name.isascii() and name.isdecimal() and 0 < int(name) <= _MOST_VERSIONS:
        return int(name)
    for version in reversed(model.versions.values()):
        if version.active and (version.source, version.stamp) == (asked.source, asked.stamp):
            return version.number
    return max(model.versions, default=0) + 1


def forget_stopped(model: Model) -> Model:
    """Return the model without the oldest of its stopped versions."""
    stopped = [version for version in model.versions.values() if version.state == State.STOPPED]
    oldest = sorted(stopped, key=lambda version: version.since)[: max(0, len(stopped) - _KEPT_STOPPED)]
    gone = {version.number for version in oldest}
    return (
        model.change(versions={n: version for n, version in model.versions.items() if n not in gone}) if gone else model
    )


def _apply_routing(model: Model, asked: Deployment) -> Model:
    if asked.layer is not None:
        check_name(asked.layer)
        if asked.layer != model.layer_name and model.arms:
            raise PreconditionError(
                f"{model.name}: has traffic in layer '{model.layer_name}', expected none when the layer becomes "
                f"'{asked.layer}'"
            )
        model = model.change(layer=asked.layer)
    if asked.key_input is not None:
        model = model.change(key_input=asked.key_input or None)
    return model


def _check_same(model: Model, version: Version, asked: Deployment) -> None:
    name = f"{model.name}/{version.number}"
    if version.source != asked.source:
        raise ExistsError(f"{name}: deployed from {version.source}, expected that directory, or another version number")
    if version.stamp != asked.stamp:
        raise ExistsError(
            f"{name}: the files in {asked.source} have changed since it was deployed, expected a new version number"
        )
    if version.optimize != asked.optimize:
        how = "as it is" if version.optimize is None else f"optimized ({version.optimize})"
        raise ExistsError(f"{name}: deployed {how}, expected the same, or another version number")


def _change_settings(model: Model, version: Version, asked: Deployment) -> Change:
    given = {name: getattr(asked.settings, name) for name in asked.settings.model_fields_set}
    settings = version.settings.model_copy(update=given)
    values = {
        "settings": settings,
        "slo_p99_ms": asked.slo_p99_ms or version.slo_p99_ms,
        "profile": version.profile if asked.profile is None else asked.given_profile,
    }
    if "follow" in asked.settings.model_fields_set:
        values["followed"] = asked.followed
    if settings.follow != version.settings.follow:
        values["epoch"] = None
    changed = version.model_copy(update=values)
    if changed == version:
        return Change(model)
    note = Note(
        kind="settings",
        message=f"{model.name}/{version.number}: settings changed",
        model=model.name,
        version=version.number,
        data=settings.model_dump(exclude_defaults=True),
    )
    return Change(model.with_version(changed), (note,))


def _add_version(model: Model, before: Version | None, number: int, asked: Deployment, now: float) -> Change:
    """Add a new version; if its number was used by one that stopped or failed, keep nothing of that one."""
    version = Version(
        number=number,
        source=asked.source,
        stamp=asked.stamp,
        state=State.NEW if before is None else before.state,
        since=now,
        deployed_at=now,
        **asked.version_options(),
    )
    data = {"source": asked.source, "optimize": asked.optimize}
    message = f"{model.name}/{number}: deployed from {asked.source}"
    note = Note(kind="deploy", message=message, model=model.name, version=number, data=data)
    change = Change(forget_stopped(model.with_version(version)), (note,))
    return change if before is None else change.then(move(change.model, number, State.NEW, now))


def _choose_baseline(change: Change, number: int) -> Change:
    """Make the version the baseline if nothing else serves."""
    model = change.model
    baseline = None if model.baseline is None else model.versions[model.baseline]
    can_go_back = baseline is not None and model.last_good not in {None, baseline.number}
    if baseline is not None and (baseline.active or can_go_back or baseline.number == number):
        return change
    note = Note(kind="baseline", message=f"{model.name}/{number}: is the baseline", model=model.name, version=number)
    return change.then(Change(model.change(baseline=number, candidate=None, going_back=False), (note,)))


def _apply_shares(change: Change, number: int, asked: Deployment, taken: Iterable[BucketRange]) -> Change:
    """Set labels, traffic and mirrored traffic; a baseline serves what no arm selects, so shares are ignored for it."""
    model, notes = change.model, list(change.notes)
    if asked.labels:
        model = model.change(labels=model.labels | dict.fromkeys(asked.labels, number))
    is_baseline = number == model.baseline
    if asked.traffic is not None and not is_baseline:
        weights = {**model.weights, number: asked.traffic}
        weights = {version: weight for version, weight in weights.items() if weight}
        if weights != model.weights:
            kept = tuple(ramp for ramp in model.ramps if ramp.version != number)
            model = reassign(model, weights, taken).change(ramps=kept)
            message = f"{model.name}/{number}: {asked.traffic / 100:g} % of the traffic once it is ready"
            notes.append(Note(kind="traffic", message=message, model=model.name, version=number))
    version = model.versions[number]
    shadow = 0 if is_baseline else version.shadow if asked.shadow is None else asked.shadow
    held = version.held and not shadow
    if (version.shadow, version.held) != (shadow, held):
        model = model.with_version(version.model_copy(update={"shadow": shadow, "held": held}))
    return Change(model, tuple(notes))

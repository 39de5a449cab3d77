# SPDX-License-Identifier: Apache-2.0
"""Convert `desired.json` back into the models' records, for a proxy that has lost its database.

The output of `render` is read back without loss, except for versions that hosts do not have: those that wait for their
gates, and those that failed there. A file that was written by hand has no annotations: its last good version is then
the newest one that is kept without traffic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from serving_proxy.deploy.deployment import check_name
from serving_proxy.deploy.desired_state import PLACEMENT
from serving_proxy.errors import ProxyError
from serving_proxy.field_faults import first_fault
from serving_proxy.records.models import Model, Settings, Version
from serving_proxy.records.placement import ModelPlacement
from serving_proxy.records.states import State


@dataclass(frozen=True)
class Adopted:
    """The result of reading a `desired.json`.

    Attributes
    ----------
    models : dict of str to Model
        The versions are `loading` until hosts report more.
    left : tuple of str
        Entries that could not be read, with the reasons.
    placed : dict of str to ModelPlacement
        The machines of the models that have machines of their own.
    """

    models: dict[str, Model]
    left: tuple[str, ...]
    placed: dict[str, ModelPlacement] = field(default_factory=dict)


def adopt(body: Mapping[str, Any], now: float) -> Adopted:
    """Read the models of a `desired.json`.

    Parameters
    ----------
    body : mapping
        Its content.
    now : float [s since 1970]
    """
    models: dict[str, Model] = {}
    left: list[str] = []
    placed: dict[str, ModelPlacement] = {}
    for name, entry in sorted(_mapping(body.get("models")).items()):
        versions: dict[int, Version] = {}
        for number, version in sorted(_mapping(_mapping(entry).get("versions")).items()):
            try:
                versions[int(number)] = _version(int(number), version, now)
            except (ValidationError, ValueError, TypeError, KeyError) as error:
                left.append(f"{name}/{number}: {_reason(error)}")
        try:
            place = _mapping(_mapping(entry).get("annotations")).get(PLACEMENT)
            if place is not None:
                placed[name] = ModelPlacement.model_validate(_mapping(place).get("record"))
            models[check_name(name)] = _model(name, _mapping(entry), dict(sorted(versions.items())))
        except (ValidationError, ProxyError, ValueError, TypeError, KeyError) as error:
            left.append(f"{name}: {_reason(error)}")
    return Adopted(models, tuple(left), placed)


def _model(name: str, entry: Mapping[str, Any], versions: dict[int, Version]) -> Model:
    if entry["baseline"] not in versions:
        raise ValueError(f"baseline {entry['baseline']}, expected a version that can be read")
    routing = _mapping(entry.get("routing"))
    labels = {label: number for label, number in _mapping(entry.get("labels")).items() if number in versions}
    for shadow in entry.get("shadow") or []:
        number = shadow["version"]
        versions[number] = versions[number].model_copy(update={"shadow": int(shadow["weight"])})
    layer = routing.get("layer")
    values: dict[str, Any] = {
        "name": name,
        "baseline": entry["baseline"],
        "labels": labels,
        "published": labels,
        "layer": None if layer in {None, name} else layer,
        "key_input": _mapping(routing.get("key")).get("input"),
        "paused": bool(routing.get("paused")),
        "request_log": entry.get("request_log"),
        "arms": [arm for arm in routing.get("arms") or [] if arm["weight"]],
    }
    kept = dict(_mapping(entry.get("annotations")))
    kept.pop(PLACEMENT, None)
    if "last_good" not in kept:
        held = [number for number, version in versions.items() if version.held]
        values["last_good"] = max(held, default=None)
    model = Model.model_validate({**values, **kept})
    named = {arm.version for arm in model.arms} | {ramp.version for ramp in model.ramps}
    gone = {number for number in (model.candidate, model.last_good) if number is not None} - versions.keys()
    if named - versions.keys():
        raise ValueError(f"arms of versions {sorted(named - versions.keys())}, expected versions that can be read")
    for role in ("candidate", "last_good"):
        if getattr(model, role) in gone:
            model = model.change(**{role: None})
    return model.change(versions=versions)


def _version(number: int, entry: Any, now: float) -> Version:
    entry = _mapping(entry)
    files = _mapping(entry.get("files"))
    settings = {key: entry[key] for key in Settings.model_fields if entry.get(key) is not None}
    values: dict[str, Any] = {
        "number": number,
        "source": entry["path"],
        "path": entry["path"],
        "state": State.LOADING,
        "since": now,
        "deployed_at": now,
        "held": entry.get("traffic") is False,
        "sha256": files.get("sha256"),
        "seal": files.get("seal"),
        "epoch": entry.get("epoch"),
        "needs": entry.get("needs") or (),
    }
    kept = dict(_mapping(entry.get("annotations")))
    own = kept.pop("settings", None)
    if own is not None:
        # The operator's own settings, without those that the proxy added to divide the cores.
        settings = {key: value for key, value in settings.items() if key not in {"config", "limits"}} | own
    return Version.model_validate({**values, **kept, "settings": Settings.model_validate(settings)})


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return first_fault(error)
    return f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)

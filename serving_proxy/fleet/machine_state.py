# SPDX-License-Identifier: Apache-2.0
"""The state of one machine, from that of all machines together. A pure function."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from serving_proxy.deploy.desired_state import PLACEMENT

Json = dict[str, Any]


def has_placement(desired: Mapping[str, Any]) -> bool:
    """Return whether machines have different states."""
    return any(PLACEMENT in model.get("annotations", {}) for model in desired.get("models", {}).values())


def state_of(desired: Mapping[str, Any], machine: str) -> Json:
    """Return what a machine is to serve: models without a placement, and those that are placed there.

    Parameters
    ----------
    desired : dict
        The desired state of all machines.
    machine : str
    """
    models = {}
    for name, model in desired.get("models", {}).items():
        placed = model.get("annotations", {}).get(PLACEMENT)
        if placed is None:
            models[name] = model
        elif machine in placed["on"]:
            models[name] = _with_versions(model, placed["on"][machine])
    return {**desired, "models": models}


def cores_of(desired: Mapping[str, Any], machine: str) -> Json:
    """Return the cores of the versions that are placed on a machine, by `model/version`.

    A version without an entry shares the cores of the model's largest entry there.
    """
    found = {}
    for name, model in desired.get("models", {}).items():
        placed = model.get("annotations", {}).get(PLACEMENT)
        if placed is None or machine not in placed["on"]:
            continue
        replicas = [replica for replica in placed["record"]["replicas"] if replica["machine"] == machine]
        by_version = {replica.get("version"): replica for replica in replicas}
        largest = max(replicas, key=lambda replica: replica.get("cores", 0), default=None)
        for number in placed["on"][machine]:
            replica = by_version.get(number) or by_version.get(None) or largest
            if replica is not None and replica.get("cores"):
                cores = {"cores": replica["cores"], "core_list": replica.get("core_list", "")}
                found[f"{name}/{number}"] = cores
    return found


def _with_versions(model: Mapping[str, Any], numbers: Collection[int]) -> Json:
    """Return a model with some of its versions, and without its placement, which other machines need not know."""
    there = set(numbers)
    found = {**model, "versions": {n: entry for n, entry in model["versions"].items() if int(n) in there}}
    found["annotations"] = {key: value for key, value in model["annotations"].items() if key != PLACEMENT}
    if not found["annotations"]:
        del found["annotations"]
    return found

# SPDX-License-Identifier: Apache-2.0
"""The versions that cores are divided among, from the models' records. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from serving_proxy.records.models import Model, Settings, Version
from serving_proxy.records.states import State
from serving_proxy.system.cpus import read_cpus

# For models without an SLO; the same for all, so that none is set apart because of it.
DEFAULT_SLO_MS = 50.0


@dataclass(frozen=True)
class DeployedTenant:
    """A version whose cores the proxy chooses.

    Attributes
    ----------
    name : str
        `model/version`.
    path : str
        The folder that it was loaded from: another folder is another model.
    like : str or None
        The baseline of its model; None for the baseline itself.
    profile : str or None
        The profile's file that was given with it.
    """

    name: str
    model: str
    version: int
    role: Literal["baseline", "variant"]
    slo_ms: float
    path: str
    like: str | None = None
    profile: str | None = None


def tenants(models: Mapping[str, Model]) -> tuple[DeployedTenant, ...]:
    """Return the versions that hosts are to have, except those whose cores an operator has chosen; baselines first."""
    found = []
    for name, model in sorted(models.items()):
        baseline = model.versions.get(model.baseline) if model.baseline is not None else None
        if baseline is None or not baseline.desired:
            continue
        usual = baseline.slo_p99_ms or DEFAULT_SLO_MS
        for number, version in sorted(model.versions.items()):
            if _may_get_requests(model, version) and version.path is not None and not is_manual(version.settings):
                first = number == model.baseline
                found.append(
                    DeployedTenant(
                        f"{name}/{number}",
                        name,
                        number,
                        "baseline" if first else "variant",
                        version.slo_p99_ms or usual,
                        version.path,
                        None if first else f"{name}/{model.baseline}",
                        version.profile,
                    )
                )
    return tuple(sorted(found, key=lambda tenant: tenant.role != "baseline"))


def _may_get_requests(model: Model, version: Version) -> bool:
    """Return whether a version may get requests; a version that is only kept warm needs no cores."""
    reachable = version.number in {*model.published.values(), *model.weights, model.baseline}
    return version.desired and version.state != State.FAILED and (reachable or not version.held)


def is_manual(settings: Settings) -> bool:
    """Return whether the proxy must not choose CPUs: an operator did, or requests run on their callers' threads."""
    return settings.cpuset is not None or settings.config.get("execution") == "inline"


def manual_cpus(models: Mapping[str, Model]) -> set[int]:
    """Return the CPUs that operators have given to versions."""
    groups = [
        group
        for model in models.values()
        for version in model.versions.values()
        if version.desired
        for group in (version.settings.cpuset or "").split(";")
    ]
    return {cpu for group in groups for cpu in read_cpus(group)}

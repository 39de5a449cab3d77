# SPDX-License-Identifier: Apache-2.0
"""Refuse changes that need what a live host, perhaps of an earlier release, cannot do."""

from __future__ import annotations

from collections.abc import Sequence

from serving_proxy.deploy.desired_state import HostSettings, render_model
from serving_proxy.deploy.placing import hosts_for
from serving_proxy.errors import PreconditionError
from serving_proxy.records.features import lacking, needs_of_model, needs_of_version
from serving_proxy.records.hosts import HUNG, HostSeen
from serving_proxy.records.models import Model
from serving_proxy.records.placement import Placement

_GOING = {"draining", HUNG}


def check_features(
    hosts: Sequence[HostSeen],
    placement: Placement | None,
    before: Model | None,
    after: Model,
    settings: HostSettings,
) -> None:
    """Raise `PreconditionError` if a change of a model needs a feature that a live host lacks which is to have it.

    What the model needed before counts as accepted: a host that came later refuses it alone, and the other hosts must
    stay controllable.
    """
    known = {} if before is None else _needs(before, settings)
    for (name, number), needs in _needs(after, settings).items():
        for host in hosts_for(hosts, placement, after, number):
            if not host.alive or host.state in _GOING:
                continue
            reason = lacking(host, needs - known.get((name, number), frozenset()))
            if reason:
                raise PreconditionError(f"{name}: {reason}, expected hosts of a release that has it")


def _needs(model: Model, settings: HostSettings) -> dict[tuple[str, int], frozenset[str]]:
    """Return the features that each version needs, and the model itself on the hosts of its baseline."""
    rendered = render_model(model, settings)
    if rendered is None:
        return {}
    versions = rendered["versions"].items()
    found = {(f"{model.name}/{number}", int(number)): needs_of_version(entry) for number, entry in versions}
    return {(model.name, rendered["baseline"]): needs_of_model(rendered), **found}

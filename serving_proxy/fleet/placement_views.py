# SPDX-License-Identifier: Apache-2.0
"""The API's views of the placement."""

from __future__ import annotations

from collections.abc import Mapping

from serving_proxy.records.models import Model
from serving_proxy.records.placement import Placement
from serving_proxy.records.view import View


class PlacedModelView(View):
    """The machines of a model; `leaving` keep it until `machines` have it, and `waits_for` says what is missing."""

    name: str
    machines: list[str]
    leaving: list[str]
    waits_for: str | None
    versions: dict[str, list[str]]


class PlacementView(View):
    """The placement in force; `applied` null: there is none, and all machines have all models."""

    applied: float | None
    handover_s: float | None
    models: list[PlacedModelView]
    remarks: list[str]


def placement_view(
    placement: Placement | None, models: Mapping[str, Model], waits: Mapping[str, str], remarks: list[str]
) -> PlacementView:
    """Return the view of a placement.

    Parameters
    ----------
    placement : Placement or None
    models : mapping of str to Model
    waits : mapping of str to str
        By model, what is missing on its new machines.
    remarks : list of str
    """
    if placement is None:
        return PlacementView(applied=None, handover_s=None, models=[], remarks=remarks)
    found = []
    for name, placed in placement.models.items():
        model = models.get(name)
        numbers = [] if model is None else [n for n, version in model.versions.items() if version.desired]
        versions = {str(n): sorted(placed.wanted(model, n)) for n in numbers} if model is not None else {}
        found.append(
            PlacedModelView(
                name=name,
                machines=sorted(placed.machines),
                leaving=sorted(placed.left),
                waits_for=waits.get(name),
                versions=versions,
            )
        )
    return PlacementView(applied=placement.applied, handover_s=placement.handover_s, models=found, remarks=remarks)

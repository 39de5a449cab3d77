# SPDX-License-Identifier: Apache-2.0
"""Apply placements: models are loaded on their new machines before the old ones unload them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from serving_proxy.deploy.control import Control
from serving_proxy.deploy.placing import changed, read_placement, waits_for
from serving_proxy.fleet.machines import Machines
from serving_proxy.fleet.placement_views import PlacementView, placement_view
from serving_proxy.fleet.room import lacking_memory
from serving_proxy.records.models import Note
from serving_proxy.records.placement import ModelPlacement, Placement

_MOST_NAMES = 20


class Placements:
    """The placement of a proxy whose hosts are run by agents."""

    def __init__(self, control: Control, machines: Machines) -> None:
        self._control = control
        self._machines = machines
        self._since: dict[str, float] = {}
        self._waits: dict[str, str] = {}
        # What an event has said already.
        self._without_entry = self._models_without_entry()
        self._unnamed = set(machines.names)

    def apply(self, data: Mapping[str, Any], handover_s: float) -> PlacementView:
        """Put a placement into force.

        Parameters
        ----------
        data : mapping
            The JSON of `cost-model place --json`.
        handover_s : float [s]
            How long machines keep a model after its new machines have it.

        Raises
        ------
        ProxyError
            As in `serving_proxy.deploy.placing.read_placement`, or it cannot be stored.
        """
        control = self._control
        asked = read_placement(data, handover_s, time.time())
        after = changed(control.placement, asked, control.models, self._machines.names)
        before = control.placement
        if before is not None and (before.models, before.handover_s) == (after.models, after.handover_s):
            return self.view()
        moves = [note for name, placed in after.models.items() for note in _move_notes(name, placed)]
        message = f"placement: {len(after.models)} models on {len(after.machines)} machines"
        notes = [Note(kind="placement", message=message), *moves]
        notes += [Note(kind="placement", message=remark) for remark in self._remarks(after)]
        control.place(after, notes)
        self._since, self._waits, self._without_entry = {}, {}, self._models_without_entry()
        self._unnamed = set(self._machines.names)
        return self.view()

    def clear(self) -> PlacementView:
        """Put all models on all machines."""
        if self._control.placement is not None:
            self._control.place(None, [Note(kind="placement", message="placement: none, all machines get all models")])
        return self.view()

    def view(self) -> PlacementView:
        """Return the view of the placement."""
        placement = self._control.placement
        remarks = [] if placement is None else self._remarks(placement)
        return placement_view(placement, self._control.models, self._waits, remarks)

    def step(self) -> None:
        """Let machines unload what has moved, and record what waits."""
        placement = self._control.placement
        if placement is None or not self._machines.settled:
            return
        now = time.monotonic()
        notes: list[Note] = []
        models = dict(placement.models)
        for name, placed in placement.models.items():
            if placed.leaving and self._has_moved(name, placed, placement.handover_s, now, notes):
                models[name] = placed.model_copy(update={"leaving": {}})
                self._since.pop(name, None)
        if models != placement.models:
            self._control.place(placement.model_copy(update={"models": models}), notes)
        elif notes:
            self._control.store([], notes)
        self._note_without_entry(placement)

    def is_moving(self, name: str) -> bool:
        """Return whether new machines of a model do not have it yet, so that clients need the old ones."""
        placement = self._control.placement
        placed = None if placement is None else placement.models.get(name)
        return placed is not None and bool(placed.leaving) and name not in self._since

    def _has_moved(self, name: str, placed: ModelPlacement, handover_s: float, now: float, notes: list[Note]) -> bool:
        """Return whether the machines that a model leaves may unload it; add what is to be said."""
        model = self._control.models.get(name)
        waits = None if model is None else waits_for(placed, model, self._control.hosts)
        if waits is not None:
            self._since.pop(name, None)
            if self._waits.get(name) != waits:
                self._waits[name] = waits
                left = _text(placed.left)
                message = f"{name}: {left} keeps it, as it waits for {waits}"
                notes.append(Note(kind="placement", message=message, model=name))
            return False
        self._waits.pop(name, None)
        if now - self._since.setdefault(name, now) < handover_s:
            return False
        message = f"{name}: is ready on {_text(placed.machines)}; {_text(placed.left)} unloads it"
        notes.append(Note(kind="placement", message=message, model=name))
        return True

    def _remarks(self, placement: Placement) -> list[str]:
        """Return what an operator should know about a placement."""
        names = set(self._machines.names)
        remarks = []
        absent = sorted(placement.machines - names)
        if absent:
            remarks.append(f"machines that have never reported: {_text(absent)}; nothing moves away for them")
        others = sorted(names - placement.machines)
        if others:
            remarks.append(f"machines without an entry: {_text(others)}; they get only models without an entry")
        models = sorted(self._deployed() - placement.models.keys())
        if models:
            remarks.append(f"models without an entry: {_text(models)}; they are on all machines")
        apart = sorted(name for name, placed in placement.models.items() if placed.has_versions_apart)
        if apart:
            remarks.append(f"versions on different machines: {_text(apart)}; those with a share are on all of these")
        reports = ((machine.name, machine.report) for machine in self._machines.all())
        memory = {name: report.memory_bytes for name, report in reports if report is not None}
        return remarks + lacking_memory(placement, self._control.models, self._control.hosts, memory)

    def _note_without_entry(self, placement: Placement) -> None:
        """Record models and machines that are new and have no entry."""
        models = self._models_without_entry()
        for name in sorted(models - self._without_entry):
            self._control.note("placement", f"{name}: has no entry in the placement, so it is on all machines", name)
        self._without_entry = models
        machines = set(self._machines.names)
        for name in sorted(machines - self._unnamed - placement.machines):
            self._control.note("placement", f"{name}: has no entry in the placement; it gets models without an entry")
        self._unnamed |= machines

    def _models_without_entry(self) -> set[str]:
        placement = self._control.placement
        return set() if placement is None else self._deployed() - placement.models.keys()

    def _deployed(self) -> set[str]:
        models = self._control.models.values()
        return {model.name for model in models if any(version.active for version in model.versions.values())}


def _move_notes(name: str, placed: ModelPlacement) -> list[Note]:
    if not placed.leaving:
        return []
    message = f"{name}: moves from {_text(placed.left)} to {_text(placed.machines)}"
    return [Note(kind="placement", message=message, model=name)]


def _text(names: Any) -> str:
    """Return names as text, the first of many."""
    found = sorted(names)
    more = len(found) - _MOST_NAMES
    return ", ".join(found[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")

# SPDX-License-Identifier: Apache-2.0
"""The guard's loop: once a second, judge the versions that get requests, record the verdicts and act on them."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import Any

from serving_proxy.counters.stats_file import Key
from serving_proxy.counters.tally import Tally
from serving_proxy.counters.windows import Totals, Window
from serving_proxy.deploy.changes import Change
from serving_proxy.deploy.control import Control
from serving_proxy.deploy.epochs import served_epochs
from serving_proxy.errors import ProxyError
from serving_proxy.guard.actions import ActionTaken, action_for, judged_roles
from serving_proxy.guard.alerts import Alerts
from serving_proxy.guard.epochs import EpochTrail, return_to, suspects
from serving_proxy.guard.judging import judge
from serving_proxy.guard.verdict import Evidence, Role, Ruling, Verdict
from serving_proxy.records.guard_settings import GuardSettings
from serving_proxy.records.models import Model, Note
from serving_proxy.records.states import State

log = logging.getLogger("serving_proxy.guard")

_STORED = "guard"
# Counters of responses of the epoch before may arrive two seconds after a host has reported another one.
_SETTLES_S = 3.0
# A host that no longer has the epoch stays at an earlier one, and must be judged there.
_LONGEST_SETTLING_S = 30.0


@dataclass
class WatchedVersion:
    """A version that is judged.

    Attributes
    ----------
    mark : tuple
        Role, deployment time, and the epochs at which it and its baseline are held; if these change, judging starts
        again.
    marked_at : float [s]
        When the mark was set.
    recent : Tally
        Counters of the window.
    epochs : dict of int to EpochTrail
        The epochs of the version and of its baseline, by their numbers.
    within_since : float or None
        Since when every verdict has found it within its limits.
    recorded : str
        The last ruling that was recorded: `ok`, `bad`, `promote` or "".
    """

    mark: tuple[Any, ...]
    role: Role
    window: Window
    marked_at: float
    recent: Tally = field(default_factory=Tally)
    verdict: Verdict = field(default_factory=lambda: Verdict(Ruling.WAIT, "not judged yet"))
    within_since: float | None = None
    recorded: str = ""
    epochs: dict[int, EpochTrail] = field(default_factory=dict)


class Guard:
    """Judges versions, and removes the traffic of those that are bad."""

    def __init__(self, control: Control, totals: Totals, alerts: Alerts | None = None) -> None:
        self._control = control
        self._totals = totals
        self._alerts = alerts
        self._watched: dict[Key, WatchedVersion] = {}
        stored = control.repository.setting(_STORED) or {}
        self._rulings: dict[str, dict[str, Any]] = stored.get("rulings", {})
        self._baselines: dict[str, dict[str, Any]] = stored.get("baselines", {})

    def step(self, now: float | None = None) -> None:
        """Judge every version that gets requests."""
        now = time.time() if now is None else now
        kept = False
        watched: set[Key] = set()
        for model in list(self._control.models.values()):
            kept |= self._follow_baseline(model, now)
            if model.guard.action == "off":
                continue
            for number, role in judged_roles(model).items():
                watched.add((model.name, number))
                self._add_counters(model, number, role, now)
        kept |= self._forget(watched)
        for key in watched & self._watched.keys():
            current = self._control.models.get(key[0])
            if current is not None:
                kept |= self._judge_version(current, key[1], now)
        if kept:
            self._store()

    def watched(self, name: str) -> dict[int, WatchedVersion]:
        """Return the judged versions of a model."""
        return {number: watched for (model, number), watched in self._watched.items() if model == name}

    def _add_counters(self, model: Model, number: int, role: Role, now: float) -> None:
        """Add the counters of a version up to now to its window."""
        key = (model.name, number)
        compared = [number] if role == Role.BASELINE or model.baseline is None else [number, model.baseline]
        held = [model.versions[other].epoch for other in compared]
        mark = (role.value, model.versions[number].deployed_at, *held)
        watched = self._watched.get(key)
        if watched is None or watched.mark != mark:
            recorded = self._rulings.get(f"{model.name}/{number}", {})
            same = tuple(recorded.get("mark", ())) == mark
            window = Window(model.guard.window_s)
            watched = WatchedVersion(mark, role, window, now, recorded=recorded.get("ruling", "") if same else "")
            self._watched[key] = watched
        settled = all(self._serves(model, other, epoch) for other, epoch in zip(compared, held, strict=True))
        if not settled and 0 <= now - watched.marked_at < _LONGEST_SETTLING_S:
            watched.window = Window(model.guard.window_s, now + _SETTLES_S)
        watched.window.seconds = model.guard.window_s
        watched.recent = watched.window.add(now, self._totals.of(key))
        for other in compared:
            served = served_epochs(self._control.hosts, model.name, other)
            if served is not None:
                trail = watched.epochs.setdefault(other, EpochTrail())
                trail.add(now, now - watched.window.covered(now), served.epoch)

    def _serves(self, model: Model, number: int, epoch: int | None) -> bool:
        """Return whether all hosts serve the epoch at which a version is held, if it is held."""
        served = None if epoch is None else served_epochs(self._control.hosts, model.name, number)
        return served is None or served.epoch == served.last == epoch

    def _judge_version(self, model: Model, number: int, now: float) -> bool:
        """Judge a version, and act the first time that it is found bad; return whether there is a new ruling."""
        watched = self._watched[model.name, number]
        # An action for another version of the model may have changed the role of this one.
        if judged_roles(model).get(number) != watched.role or model.versions[number].state != State.READY:
            return False
        baseline = self._watched.get((model.name, model.baseline)) if model.baseline is not None else None
        slo = model.versions[number].slo_p99_ms
        against = None if watched.role == Role.BASELINE or baseline is None else baseline.recent
        within = 0.0 if watched.within_since is None else now - watched.within_since
        watched.verdict = judge(model.guard, Evidence(watched.role, watched.recent, against, slo, within))
        self._track_time_within(watched, now)
        ruling = watched.verdict.ruling
        if ruling == Ruling.WAIT or ruling.value == watched.recorded:
            return False
        try:
            self._record_ruling(model, number, watched, now)
        except ProxyError:
            # The disk is full: the guard tries again in a second.
            log.exception("%s/%s: %s", model.name, number, watched.verdict.reason)
            return False
        watched.recorded = ruling.value
        self._rulings[f"{model.name}/{number}"] = {"mark": list(watched.mark), "ruling": ruling.value, "at": now}
        return True

    def _track_time_within(self, watched: WatchedVersion, now: float) -> None:
        ruling = watched.verdict.ruling
        if ruling in {Ruling.OK, Ruling.PROMOTE}:
            watched.within_since = watched.within_since or now
            for trail in watched.epochs.values():
                trail.approve()
        elif ruling == Ruling.BAD or watched.verdict.findings:
            # The verdict is in doubt; having too few requests is not a doubt.
            watched.within_since = None

    def _record_ruling(self, model: Model, number: int, watched: WatchedVersion, now: float) -> None:
        verdict = watched.verdict
        if verdict.ruling == Ruling.OK:
            message = f"{model.name}/{number}: within its limits; {verdict.reason}"
            note = Note(kind="guard", message=message, model=model.name, version=number, data=_data(watched, "none"))
            self._control.commit(Change(model, (note,)))
            return
        since = self._baselines.get(model.name, {}).get("since", now)
        done = self._return_to_epoch(model, number, watched) or action_for(
            model, number, watched.role, verdict, now - since
        )
        note = done.change.notes[0].model_copy(update={"data": _data(watched, done.action)})
        self._control.commit(Change(done.change.model, (note, *done.change.notes[1:])))
        self._control.step()
        if self._alerts is not None:
            self._alerts.send(note.message, {"at": now, "model": model.name, "version": number, **note.data})

    def _return_to_epoch(self, model: Model, number: int, watched: WatchedVersion) -> ActionTaken | None:
        """Hold a version at an earlier epoch if its last ones may have caused a bad verdict."""
        if model.guard.action != "epoch":
            return None
        for suspect in suspects(model, number, watched.role, watched.verdict):
            trail = watched.epochs.get(suspect, EpochTrail())
            epoch = trail.target(served_epochs(self._control.hosts, model.name, suspect))
            if epoch is not None:
                return return_to(model, suspect, epoch, trail.good, number, watched.verdict)
        return None

    def _follow_baseline(self, model: Model, now: float) -> bool:
        """Remember since when a version has been the baseline."""
        known = self._baselines.get(model.name, {})
        if model.baseline is None or known.get("version") == model.baseline:
            return False
        self._baselines[model.name] = {"version": model.baseline, "since": now}
        return True

    def _forget(self, watched: set[Key]) -> bool:
        """Forget what is no longer judged, so that judging starts again if it returns."""
        self._watched = {key: version for key, version in self._watched.items() if key in watched}
        names = {f"{model}/{number}" for model, number in watched}
        gone = self._rulings.keys() - names
        models = self._baselines.keys() - self._control.models.keys()
        for name in gone:
            del self._rulings[name]
        for name in models:
            del self._baselines[name]
        return bool(gone or models)

    def _store(self) -> None:
        try:
            self._control.repository.set_setting(_STORED, {"rulings": self._rulings, "baselines": self._baselines})
        except ProxyError:
            log.exception("the guard's rulings could not be stored")


def _data(watched: WatchedVersion, action: str) -> dict[str, Any]:
    verdict = watched.verdict.to_json()
    return {"role": watched.role.value, "action": action, **verdict, "ruling": watched.verdict.ruling.value}


def with_settings(model: Model, settings: GuardSettings) -> Change:
    """Return the model with these settings of the guard."""
    if settings == model.guard:
        return Change(model)
    data = settings.model_dump(exclude_defaults=True)
    said = ", ".join(f"{name} {value}" for name, value in data.items()) or "all defaults"
    note = Note(kind="guard", message=f"{model.name}: guard settings changed, {said}", model=model.name, data=data)
    return Change(model.change(guard=settings), (note,))

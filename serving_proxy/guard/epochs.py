# SPDX-License-Identifier: Apache-2.0
"""Find the epoch to which a version returns if its scores became bad while it followed a timeline."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from serving_proxy.deploy.changes import Change, hold_epoch
from serving_proxy.deploy.epochs import ServedEpochs
from serving_proxy.guard.actions import ActionTaken
from serving_proxy.guard.verdict import Role, Ruling, Verdict
from serving_proxy.records.models import Model, Note

# A p99 above its limit is left out: deltas change scores.
_OF_SCORES = frozenset({"errors", "nan", "correlation", "difference"})
# These compare the scores of two versions, each of which may have changed.
_OF_TWO = frozenset({"correlation", "difference"})


@dataclass
class EpochTrail:
    """The epochs that a version has served within the guard's window.

    Attributes
    ----------
    good : int or None
        The last epoch that was served before a window in which the version was within its limits, or during all of it.
    """

    good: int | None = None
    _served: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, now: float, since: float, epoch: int) -> None:
        """Add the epoch that is served now, and forget those that were replaced before the window began at `since`."""
        if not self._served or self._served[-1][1] != epoch:
            self._served.append((now, epoch))
        while len(self._served) > 1 and self._served[1][0] <= since:
            self._served.popleft()

    def approve(self) -> None:
        """Record that the version was within its limits in this window; later epochs may have had few requests yet."""
        if self._served:
            self.good = self._served[0][1]

    def target(self, served: ServedEpochs | None) -> int | None:
        """Return the epoch to return to; None if the epochs are not to blame, or there is no earlier one."""
        if served is None:
            return None
        wanted = served.oldest if self.good is None else max(self.good, served.oldest)
        return wanted if wanted < served.last else None


def suspects(model: Model, number: int, role: Role, verdict: Verdict) -> list[int]:
    """Return the versions whose last epochs may have caused a bad verdict, the likelier first."""
    bad = {finding.what for finding in verdict.findings if finding.ruling == Ruling.BAD}
    if verdict.ruling != Ruling.BAD or not bad & _OF_SCORES:
        return []
    numbers = [number]
    if role != Role.BASELINE and bad & _OF_TWO and model.baseline is not None:
        numbers.append(model.baseline)
    return [suspect for suspect in numbers if follows_newest(model, suspect)]


def follows_newest(model: Model, number: int) -> bool:
    """Return whether a version follows a timeline and is not held at an epoch."""
    version = model.versions[number]
    return version.settings.follow is not None and version.epoch is None


def return_to(model: Model, number: int, epoch: int, good: int | None, judged: int, verdict: Verdict) -> ActionTaken:
    """Hold a version at an epoch because of the verdict on it, or on a version that is compared with it.

    Parameters
    ----------
    number, epoch, good : int
        The version, the epoch, and the last epoch that is known to be within the limits, if any.
    judged : int
        The version that the verdict is about.
    """
    changed = hold_epoch(model, number, epoch).model
    which = "the last one within its limits" if epoch == good else "the oldest that hosts keep"
    compared = "" if number == judged else f"compared with {judged}: "
    message = f"{model.name}/{number}: held at epoch {epoch}, {which}; {compared}{verdict.reason}"
    note = Note(kind="guard", message=message, model=model.name, version=number)
    return ActionTaken("epoch", Change(changed, (note,)))

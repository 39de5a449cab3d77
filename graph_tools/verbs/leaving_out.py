# SPDX-License-Identifier: Apache-2.0
"""Find the pass, and the sites of it, that make a result's outputs differ, and convert without them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from graph_tools.errors import VerificationError, WeakProofError
from graph_tools.options import NEEDED_PASSES
from graph_tools.progress import Progress
from graph_tools.report.cut import LeftOut
from graph_tools.rewriting.protocol import Pass

#: Passes that are never left out after a failure: the user requested their changes.
_ASKED_FOR = {"compress_tables"}
#: Maximum number of passes to leave out, and of single sites of one pass; if a pass has more such sites, all of it is
#: left out.
_MOST_PASSES, _MOST_SITES = 6, 4
_REASON_CHARACTERS = 300

Made = TypeVar("Made")


@dataclass(frozen=True)
class Choice:
    """The passes and sites to leave out of a conversion."""

    left_out: tuple[LeftOut, ...] = ()

    def without(self, *more: LeftOut) -> Choice:
        return replace(self, left_out=(*self.left_out, *more))

    def select(self, passes: Iterable[Pass]) -> list[Pass]:
        """Return the passes that run, each with the sites that it must not change."""
        gone = {left.name for left in self.left_out if left.site is None}
        chosen = [pass_ for pass_ in passes if pass_.name not in gone]
        for pass_ in chosen:
            sites = {left.site: left.reason for left in self.left_out if left.name == pass_.name}
            pass_.left_alone = {site: f"left out: {why}" for site, why in sites.items() if site is not None}
        return chosen


class Attempts(Generic[Made]):
    """Convert; if the verification fails, convert again without the passes and sites that make it fail.

    Parameters
    ----------
    attempt : callable
        Converts with a choice, and puts the result in place if its second argument is True. Raises `VerificationError`
        with the `passes` that ran.
    progress : Progress
    """

    def __init__(self, attempt: Callable[[Choice, bool], Made], progress: Progress) -> None:
        self._attempt = attempt
        self._progress = progress

    def run(self) -> Made:
        """Return the result, or raise the error of the first attempt if no choice of passes makes the outputs equal."""
        try:
            return self._attempt(Choice(), True)
        except WeakProofError:
            raise
        except VerificationError as error:
            found = self._find_choice(error)
            if found is None:
                raise
        return self._attempt(found, True)

    def _find_choice(self, error: VerificationError) -> Choice | None:
        names = [pass_.name for pass_ in error.passes if pass_.applied]
        names = [name for name in dict.fromkeys(names) if name not in NEEDED_PASSES | _ASKED_FOR]
        if not names or self._failure_without(_without_passes(names)) is not None:
            return None
        choice = Choice()
        failure: VerificationError | None = error
        while failure is not None and len({left_out.name for left_out in choice.left_out}) < _MOST_PASSES:
            gone = {left_out.name for left_out in choice.left_out if left_out.site is None}
            left = [name for name in names if name not in gone]

            def differs(count: int, left: Sequence[str] = left, choice: Choice = choice) -> bool:
                return self._failure_without(_without_passes(left[count:], choice)) is not None

            number = _smallest_failing(len(left), differs)
            culprit, others = left[number - 1], _without_passes(left[number:], choice)
            failure = self._failure_without(others) or failure
            choice = choice.without(*self._failing_sites(culprit, others, failure))
            failure = self._failure_without(choice)
        return choice if failure is None else None

    def _failing_sites(self, name: str, others: Choice, failure: VerificationError) -> list[LeftOut]:
        """Return the sites of a pass that cause the difference while later passes do not run; None: the whole pass."""
        sites = list(dict.fromkeys(site for pass_ in failure.passes if pass_.name == name for site in pass_.at))
        found: list[LeftOut] = []
        error: VerificationError | None = failure
        while error is not None and len(found) < _MOST_SITES and len(found) < len(sites) - 1:
            context = others.without(*found)
            left = [site for site in sites if site not in {left_out.site for left_out in found}]

            def differs(count: int, left: Sequence[str] = left, context: Choice = context) -> bool:
                return (
                    self._failure_without(context.without(*(LeftOut(name, site, "") for site in left[count:])))
                    is not None
                )

            if differs(0):
                return [LeftOut(name, None, _reason(failure))]
            found.append(LeftOut(name, left[_smallest_failing(len(left), differs) - 1], _reason(error)))
            error = self._failure_without(others.without(*found))
        return found if error is None else [LeftOut(name, None, _reason(failure))]

    def _failure_without(self, choice: Choice) -> VerificationError | None:
        count = len(choice.left_out)
        self._progress.begin(f"Searching for the pass that changes outputs: trying without {count} passes or sites")
        try:
            self._attempt(choice, False)
        except WeakProofError:
            return None
        except VerificationError as error:
            return error
        return None


def _without_passes(names: Iterable[str], choice: Choice | None = None) -> Choice:
    return (choice or Choice()).without(*(LeftOut(name, None, "") for name in names))


def _smallest_failing(count: int, fails: Callable[[int], bool]) -> int:
    """Return the smallest n for which `fails(n)` is true; `fails(0)` must be false and `fails(count)` true."""
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        if fails(middle):
            high = middle
        else:
            low = middle
    return high


def _reason(error: VerificationError) -> str:
    reasons = (error.report.get("verification") or {}).get("reasons") or [str(error)]
    return str(reasons[0])[:_REASON_CHARACTERS]

# SPDX-License-Identifier: Apache-2.0
"""The outcome of a search for a pattern at a node: no match, a refusal with its reason, or the found value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class NoMatch:
    """The node does not look like the pattern; nothing is reported.

    It counts as false, so that `first(node) or second(node)` tries the second pattern if the first is not there.
    """

    def __bool__(self) -> Literal[False]:
        return False

    def then(self, step: Callable[[Any], object]) -> NoMatch:
        """Return this outcome."""
        return self

    def in_context(self, context: str) -> NoMatch:
        """Return this outcome."""
        return self


@dataclass(frozen=True)
class Refused:
    """The node looks like the pattern but must stay as it is, which is reported.

    Attributes
    ----------
    reason : str
        The facts that were found, and those that were expected.
    """

    reason: str

    def then(self, step: Callable[[Any], object]) -> Refused:
        """Return this outcome."""
        return self

    def in_context(self, context: str) -> Refused:
        """Return the refusal with the context in front of its reason."""
        return Refused(f"{context}: {self.reason}")


@dataclass(frozen=True)
class Found(Generic[T]):
    """The pattern was found and may be rewritten; `value` is the information that the rewrite needs."""

    value: T

    def then(self, step: Callable[[T], Outcome[U]]) -> Outcome[U]:
        """Return the outcome of the next step, which continues with the found value."""
        return step(self.value)

    def in_context(self, context: str) -> Found[T]:
        """Return this outcome."""
        return self


Outcome: TypeAlias = NoMatch | Refused | Found[T]


def value_of(outcome: Outcome[T]) -> T | None:
    """Return the value that was found, or None where the reason for a refusal does not matter."""
    return outcome.value if isinstance(outcome, Found) else None

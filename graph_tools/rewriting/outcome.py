# SPDX-License-Identifier: Apache-2.0
"""The outcome of a search for a pattern at a node: no match, a refusal with its reason, or the found value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class NoMatch:
    """The node does not look like the pattern; nothing is reported.

    It counts as false, so that `first(node) or second(node)` tries the second pattern if the first is not there.
    """

    def __bool__(self) -> Literal[False]:
        return False


@dataclass(frozen=True)
class Refused:
    """The node looks like the pattern but must stay as it is, which is reported.

    Attributes
    ----------
    reason : str
        The facts that were found, and those that were expected.
    node : str
        Name of the node to report; "" stands for the node that the pass examined.
    """

    reason: str
    node: str = ""


@dataclass(frozen=True)
class Found(Generic[T]):
    """The pattern was found and may be rewritten; `value` is the information that the rewrite needs."""

    value: T


Outcome: TypeAlias = NoMatch | Refused | Found[T]


def value_of(outcome: Outcome[T]) -> T | None:
    """Return the value that was found, or None where the reason for a refusal does not matter."""
    return outcome.value if isinstance(outcome, Found) else None

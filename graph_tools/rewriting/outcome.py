# SPDX-License-Identifier: Apache-2.0
"""What looking for a pattern at a node comes to: no match, a refusal with its reason, or what was found."""

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
    """The node looks like the pattern and must stay as it is, which is reported.

    Attributes
    ----------
    reason : str
        What was found, and what was expected.
    node : str
        Name of the node to report; "" stands for the one that the pass looked at.
    """

    reason: str
    node: str = ""


@dataclass(frozen=True)
class Found(Generic[T]):
    """The pattern is there and may be rewritten; `value` is what the rewrite needs to know of it."""

    value: T


Outcome: TypeAlias = NoMatch | Refused | Found[T]

# SPDX-License-Identifier: Apache-2.0
"""What can go wrong; messages read `<object>: <what was found>, expected <what>`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class GraphToolsError(Exception):
    """Parent of every error of this package."""

    exit_code = 1


class UnreadableError(GraphToolsError, ValueError):
    """An input is missing, damaged or not of a kind that is understood."""

    exit_code = 2


class UsageError(GraphToolsError, ValueError):
    """An option names what is not there or contradicts another."""

    exit_code = 2


class ConversionError(GraphToolsError, RuntimeError):
    """The model was read, and cannot be converted without changing what it computes."""


class VerificationError(GraphToolsError, RuntimeError):
    """Two models were compared and differ by more than the tolerance.

    Attributes
    ----------
    report : dict
        The verification, as JSON has it; of `cut`, its whole report, without a target.
    passes : list of PassResult
        What a conversion had done.
    """

    def __init__(self, message: str, report: dict[str, Any]) -> None:
        super().__init__(message)
        self.report = report
        self.passes: list[Any] = []


class WeakProofError(VerificationError):
    """Two models answered alike, and were asked too little to conclude anything from it."""


@contextmanager
def naming(place: object, *others: object) -> Iterator[None]:
    """Put the model's name before the message of an error that neither says it nor one of the other places."""
    try:
        yield
    except (UnreadableError, ConversionError) as error:
        if not any(str(one) in str(error) for one in (place, *others)):
            error.args = (f"{place}: {error}", *error.args[1:])
        raise

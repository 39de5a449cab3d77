# SPDX-License-Identifier: Apache-2.0
"""Define the errors of this package; messages read `<object>: <what was found>, expected <what>`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class GraphToolsError(Exception):
    """Base class of every error of this package."""

    exit_code = 1


class UnreadableError(GraphToolsError, ValueError):
    """An input is missing, damaged or of an unknown kind."""

    exit_code = 2


class UsageError(GraphToolsError, ValueError):
    """An option names something that does not exist, or contradicts another option."""

    exit_code = 2


class ConversionError(GraphToolsError, RuntimeError):
    """The model was read, but cannot be converted without changing what it computes."""


class VerificationError(GraphToolsError, RuntimeError):
    """Two models were compared and differ by more than the tolerance.

    Attributes
    ----------
    report : dict
        The verification as JSON data; for `cut`, its whole report, without a target.
    passes : list of PassResult
        Results of the passes that a conversion had run.
    """

    def __init__(self, message: str, report: dict[str, Any]) -> None:
        super().__init__(message)
        self.report = report
        self.passes: list[Any] = []


class WeakProofError(VerificationError):
    """The outputs of two models are equal, but the requests cover too little to prove that the models are."""


@contextmanager
def naming(place: object, *others: object) -> Iterator[None]:
    """Add the name of the model in front of an error's message, unless the message contains one of the names."""
    try:
        yield
    except (UnreadableError, ConversionError) as error:
        if not any(str(name) in str(error) for name in (place, *others)):
            error.args = (f"{place}: {error}", *error.args[1:])
        raise

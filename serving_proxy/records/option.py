# SPDX-License-Identifier: Apache-2.0
"""How a field of a declaration is written on the command line; what it means stands at the field."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CliOption:
    """An option of the command line, as part of the annotation of a field.

    Attributes
    ----------
    metavar : str
        What its value is, for the help text; "" for a flag.
    help : str
    name : str or None
        Its name without dashes in front; None: that of the field.
    word : str or None
        A word that may be given in the place of a file.
    minimum : int or None
    nullable : bool
        `none` may be given.
    is_duration : bool
        It is written as 30s or 15m, and is in seconds.
    """

    metavar: str
    help: str
    name: str | None = None
    word: str | None = None
    minimum: int | None = None
    nullable: bool = False
    is_duration: bool = False


@dataclass(frozen=True)
class CliGroup:
    """The options of the command line that make up a field which is a record of its own, by its fields."""

    options: dict[str, CliOption]

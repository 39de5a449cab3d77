# SPDX-License-Identifier: Apache-2.0
"""The command-line form of a field of a declaration; the field itself describes its meaning."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CliOption:
    """An option of the command line, as part of the annotation of a field.

    Attributes
    ----------
    metavar : str
        Placeholder of its value in the help text; "" for a flag.
    help : str
    name : str or None
        Its name without leading dashes; None: that of the field.
    word : str or None
        A word that may be given instead of a file.
    minimum : int or None
    nullable : bool
        `none` may be given.
    is_duration : bool
        It is written as 30s or 15m; the field is in seconds.
    alias : str or None
        Another spelling of the option, with its dashes.
    """

    metavar: str
    help: str
    name: str | None = None
    word: str | None = None
    minimum: int | None = None
    nullable: bool = False
    is_duration: bool = False
    alias: str | None = None


@dataclass(frozen=True)
class CliGroup:
    """The command-line options for a field that is itself a record, by the names of the record's fields."""

    options: dict[str, CliOption]

# SPDX-License-Identifier: Apache-2.0
"""What is known of the values that an input may have."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from graph_tools.tensors import Array
from graph_tools.verification.features import Feature


@dataclass
class Domain:
    """What is known of the values of an input.

    Attributes
    ----------
    known : list of ndarray
        Values that the model holds: keys of tables, lines of vocabularies.
    special : list
        Single values that the graph compares with or splits at: markers of what is missing, boundaries.
    rows : int or None
        The input is a row number of a table with so many rows, and others are refused.
    separators : list of bytes
        What the strings are split at, before their parts are looked up.
    numeric_text : bool
        Strings that are parsed as numbers.
    examples : list of Feature or None
        The strings are `tf.Example` messages, of which these features are read.
    tables : set of str
        Tables whose keys or row numbers the values are: of a gather, the variable.
    size : bool
        Something is made as long, or repeated as often, as the values say: a huge one would never end.
    """

    known: list[Array] = field(default_factory=list)
    special: list[Any] = field(default_factory=list)
    rows: int | None = None
    separators: list[bytes] = field(default_factory=list)
    numeric_text: bool = False
    examples: list[Feature] | None = None
    tables: set[str] = field(default_factory=set)
    size: bool = False

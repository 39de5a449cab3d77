# SPDX-License-Identifier: Apache-2.0
"""Describe the values that an input may have."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from graph_tools.tensors import Array
from graph_tools.verification.features import Feature


@dataclass
class Domain:
    """The values that an input may have, as far as they are known.

    Attributes
    ----------
    known : list of ndarray
        Values that the model contains: keys of tables, lines of vocabularies.
    special : list
        Single values that the graph compares with or splits at: markers of missing values, boundaries.
    rows : int or None
        The input is a row number of a table with this number of rows; other values are refused.
    separators : list of bytes
        Separators at which strings are split before their parts are looked up.
    numeric_text : bool
        The strings are parsed as numbers.
    examples : list of Feature or None
        The strings are `tf.Example` messages, of which these features are read.
    tables : set of str
        Tables whose keys or row numbers the values are; for a gather, the variable.
    size : bool
        The values set the size of a tensor or the number of repetitions, so a huge value would never finish.
    """

    known: list[Array] = field(default_factory=list)
    special: list[Any] = field(default_factory=list)
    rows: int | None = None
    separators: list[bytes] = field(default_factory=list)
    numeric_text: bool = False
    examples: list[Feature] | None = None
    tables: set[str] = field(default_factory=set)
    size: bool = False

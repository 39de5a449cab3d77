# SPDX-License-Identifier: Apache-2.0
"""Define the report of `convert`, which is also the list of tables in the folder that it writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from graph_tools.json_data import Count, JsonSchema, Positive, Report, Sha256

LIST_FILE = "tables.json"


@dataclass
class ConvertedTable:
    """A table that was converted.

    Attributes
    ----------
    name : str
        Name in the training system.
    family : str
        The training system.
    key : str
        Kind of the keys.
    dim : int
        Length of a row.
    rows : int
        Number of keys.
    ignored : int
        Number of keys that the training system has rows for but does not serve; they are left out.
    sha256 : str
        SHA-256 of the file with keys and rows; the file is called so, with the suffix `.emb`.
    bytes : int
        Size of that file.
    counts_sha256 : str or None
        The same for a table of one column, which has the frequencies of the keys; None if the export has none.
    """

    name: str
    family: str
    key: Annotated[str, JsonSchema(enum=["int64", "string"])]
    dim: Positive
    rows: Count
    ignored: Count
    sha256: Sha256
    bytes: Count
    counts_sha256: Sha256 | None = None


@dataclass
class ConvertReport(Report):
    """What `graph-tools convert` wrote.

    Attributes
    ----------
    source, target : str
        What was read, and the folder that was written.
    tables : list of ConvertedTable
    """

    SCHEMA: ClassVar[str] = "convert_report/1"

    source: str
    target: str
    tables: list[ConvertedTable]

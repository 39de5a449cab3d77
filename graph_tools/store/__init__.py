# SPDX-License-Identifier: Apache-2.0
"""Embedding tables in files named after their content (docs/table_format.md), and deltas (docs/delta_format.md)."""

from graph_tools.store.reader import TableReader, read_header
from graph_tools.store.spec import EncodedRows, QuantisedRows, TableSpec
from graph_tools.store.table_file import TableFile, write_table

__all__ = ["EncodedRows", "QuantisedRows", "TableFile", "TableReader", "TableSpec", "read_header", "write_table"]

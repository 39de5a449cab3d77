# SPDX-License-Identifier: Apache-2.0
"""Embedding tables in separate files (docs/table_format.md) that are named after their content."""

from graph_tools.store.reader import TableReader, read_header
from graph_tools.store.spec import EncodedRows, QuantisedRows, TableSpec
from graph_tools.store.table_file import TableFile, write_table

__all__ = ["EncodedRows", "QuantisedRows", "TableFile", "TableReader", "TableSpec", "read_header", "write_table"]

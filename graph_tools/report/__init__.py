# SPDX-License-Identifier: Apache-2.0
"""Reports: data for programs, as docs/schemas describes it, and tables for people, made from the same data."""

from graph_tools.report.data import as_data, to_text, write_json

__all__ = ["as_data", "to_text", "write_json"]

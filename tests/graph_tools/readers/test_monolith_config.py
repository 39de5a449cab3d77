# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest

from graph_tools.readers.monolith_config import TableConfig, parse_table, parse_tables
from helpers.models.sparse_graphs import monolith_config, monolith_configs


def test_a_table() -> None:
    assert parse_table(monolith_config(1)) == TableConfig(1, False)
    assert parse_table(monolith_config(65, "fp16")) == TableConfig(65, False)
    assert parse_table(monolith_config(5, "one_bit")) == TableConfig(5, True)
    assert parse_table(monolith_config(5, "one_bit", serving=False)) == TableConfig(5, False)
    assert parse_table(b"") == TableConfig(0, False)


def test_tables_by_name_in_order() -> None:
    message = monolith_configs({"b": 3, "a": 1})
    assert list(parse_tables(message).items()) == [("b", TableConfig(3, False)), ("a", TableConfig(1, False))]


def test_malformed_configurations_are_refused() -> None:
    with pytest.raises(ValueError, match="ends after the message"):
        parse_table(monolith_config(5)[:-3])
    with pytest.raises(ValueError, match="1 tables named a, b"):
        parse_tables(b"\x0a\x01a\x0a\x01b" + monolith_configs({"a": 1})[3:])
    with pytest.raises(ValueError, match="2 tables named a, a"):
        parse_tables(monolith_configs({"a": 1}) * 2)

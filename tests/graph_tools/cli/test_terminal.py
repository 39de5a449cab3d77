# SPDX-License-Identifier: Apache-2.0
"""Test that tables fit the terminal: names wrap, numbers do not, and optional columns are left out first."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from graph_tools.cli.terminal import Columns, show, table

NAME = "input_layer/C12_embedding/embedding_weights/part_0"
COLUMNS: Columns = {"table": "name", "family": "left", "keys": "right", "note": "text", "bytes": "right"}
ROWS = [[NAME, "deeprec", "1,234,567", "", "12.3 MB"], ["short", "hps", "[red]1[/]", "", "1 B"]]


def printed(width: int, rows: Any = ROWS, columns: Columns = COLUMNS, **more: Any) -> list[str]:
    console = Console(width=width, no_color=True)
    with console.capture() as found:
        show(console, table("Title", columns, rows, width, **more))
    return [line.rstrip() for line in found.get().splitlines()]


def test_a_wide_terminal_shows_all_columns() -> None:
    lines = printed(100)
    assert lines[0] == "Title"
    assert lines[1].split() == ["table", "family", "keys", "bytes"]
    assert lines[3].split() == [NAME, "deeprec", "1,234,567", "12.3", "MB"]
    assert lines[-1] == ""


@pytest.mark.parametrize("width", [50, 60, 80])
def test_only_name_columns_wrap(width: int) -> None:
    lines = printed(width, optional=["family"])
    assert all(len(line) <= width for line in lines)
    assert any("1,234,567  12.3 MB" in line for line in lines)
    assert "".join(line.split()[0] for line in lines[3:-2]) == NAME
    assert ("deeprec" in "".join(lines)) == (width >= 60)


def test_texts_break_between_words() -> None:
    reason = "computes the shape of something which is known but for one size"
    lines = printed(60, [["a", "b", "1", reason, "2 B"]])
    words = {word for line in lines for word in line.split()}
    assert set(reason.split()) <= words


def test_columns_without_content_are_left_out() -> None:
    assert "note" not in printed(100)[1]
    assert "note" in printed(100, [[*ROWS[0][:3], "a note", "2 B"]])[1]


def test_table_without_rows_is_not_shown() -> None:
    assert printed(80, []) == []

# SPDX-License-Identifier: Apache-2.0
"""Tables of plain text, for reports that people print."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(lines: Sequence[Sequence[str]], names: int = 1) -> str:
    """Return lines of cells, the first of which has the headings, as columns of equal width.

    Parameters
    ----------
    lines : sequence of sequence of str
        All of one length.
    names : int
        Number of columns at the left that are aligned at the left; the others are numbers.
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [
        "  ".join(
            cell.ljust(width) if place < names else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    return "\n".join(line.rstrip() for line in text)

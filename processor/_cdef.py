# SPDX-License-Identifier: Apache-2.0
"""Extract the declarations for cffi from processor.h, so that they are written only once."""

from __future__ import annotations

import re

_BEGIN = "--8<-- cdef begin"
_END = "--8<-- cdef end"


def cut_cdef(header: str) -> str:
    """Return the text of a header between its cdef markers, without the export macro.

    Parameters
    ----------
    header : str
        Text of processor.h.

    Raises
    ------
    ValueError
        If a marker is missing, repeated, or out of order.
    """
    if header.count(_BEGIN) != 1 or header.count(_END) != 1 or header.index(_BEGIN) > header.index(_END):
        raise ValueError(f"header: markers not found once each and in order, expected {_BEGIN!r} and {_END!r}")
    # Both markers are inside comments: begin after the first comment and end before the second.
    body = header[header.index("*/", header.index(_BEGIN)) + 2 : header.rindex("/*", 0, header.index(_END))]
    return re.sub(r"\bPROCESSOR_API\b[ \t]*", "", body)

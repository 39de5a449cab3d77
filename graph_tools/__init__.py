# SPDX-License-Identifier: Apache-2.0
"""Cut exported recommendation models down to what serving needs, fuse the rest, and prove that scores stay equal.

The functions have the names of the commands: `inspect`, `cut`, `fuse`, `optimize`, `verify`, `diff`, `convert`,
`compress`.
`Publisher` publishes deltas. Each is imported when it is first used, so that `import graph_tools` is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graph_tools.verbs.compress import compress
    from graph_tools.verbs.convert_tables import convert
    from graph_tools.verbs.cut import cut
    from graph_tools.verbs.delta.publisher import Publisher
    from graph_tools.verbs.diff import diff
    from graph_tools.verbs.fuse import fuse, optimize
    from graph_tools.verbs.inspect import inspect
    from graph_tools.verification import verify

_PLACES = {
    "Publisher": "graph_tools.verbs.delta.publisher",
    "compress": "graph_tools.verbs.compress",
    "convert": "graph_tools.verbs.convert_tables",
    "cut": "graph_tools.verbs.cut",
    "diff": "graph_tools.verbs.diff",
    "fuse": "graph_tools.verbs.fuse",
    "inspect": "graph_tools.verbs.inspect",
    "optimize": "graph_tools.verbs.fuse",
    "verify": "graph_tools.verification",
}

__all__ = ["Publisher", "compress", "convert", "cut", "diff", "fuse", "inspect", "optimize", "verify"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

# SPDX-License-Identifier: Apache-2.0
"""The command line of graph-tools, one module a verb."""

from __future__ import annotations

import sys

_EXTRAS = {
    "typer": "graph-tools",
    "rich": "graph-tools",
    "google_crc32c": "graph-tools",
    "ml_dtypes": "graph-tools",
    "tensorflow": "cpu",
}


def main() -> None:
    """Run the command line; say what to install where a package is missing."""
    try:
        from graph_tools.cli.app import main as run

        run()
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(error.name or "")
        if extra is None:
            raise
        print(
            f"graph-tools: {error.name} is not installed, expected it: pip install 'recprocessor[{extra}]'",
            file=sys.stderr,
        )
        sys.exit(2)


__all__ = ["main"]

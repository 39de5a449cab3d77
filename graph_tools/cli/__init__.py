# SPDX-License-Identifier: Apache-2.0
"""The command line of graph-tools, one module per command."""

from __future__ import annotations

import sys

_EXTRA = {"typer", "rich", "google_crc32c", "ml_dtypes", "tensorflow"}


def main() -> None:
    """Run the command line; if a package is missing, print what to install."""
    try:
        from graph_tools.cli.app import main as run

        run()
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        print(
            f"graph-tools: {error.name} is not installed, expected it; in a checkout: make build, or pip install "
            "'.[cpu,graph-tools]'",
            file=sys.stderr,
        )
        sys.exit(2)


__all__ = ["main"]

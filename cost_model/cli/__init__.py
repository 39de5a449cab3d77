# SPDX-License-Identifier: Apache-2.0
"""Implement the command line of cost-model, one module per verb."""

from __future__ import annotations

import sys

_EXTRA = {"typer", "rich", "yaml", "matplotlib"}


def main() -> None:
    """Run the command line; if a package is missing, say what to install."""
    try:
        from cost_model.cli.app import main as run

        run()
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        print(
            f"cost-model: {error.name} is not installed, expected it; in a checkout: make build, or pip install "
            "'.[cpu,cost-model]'",
            file=sys.stderr,
        )
        sys.exit(2)


__all__ = ["main"]

# SPDX-License-Identifier: Apache-2.0
"""The command line of cost-model, one module a verb."""

from __future__ import annotations

import sys

_EXTRAS = {"typer": "cost-model", "rich": "cost-model", "yaml": "cost-model", "matplotlib": "cost-model"}


def main() -> None:
    """Run the command line; say what to install where a package is missing."""
    try:
        from cost_model.cli.app import main as run

        run()
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(error.name or "")
        if extra is None:
            raise
        print(
            f"cost-model: {error.name} is not installed, expected it: pip install 'recprocessor[{extra}]'",
            file=sys.stderr,
        )
        sys.exit(2)


__all__ = ["main"]

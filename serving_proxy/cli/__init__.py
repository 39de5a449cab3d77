# SPDX-License-Identifier: Apache-2.0
"""The command line of serving-proxy."""

from __future__ import annotations

import sys

_EXTRA = {
    "typer",
    "rich",
    "fastapi",
    "starlette",
    "uvicorn",
    "httpx",
    "pydantic",
    "pydantic_settings",
    "prometheus_client",
    "google",
}


def main() -> None:
    """Run the command line; if a package is missing, say what to install."""
    try:
        from serving_proxy.cli.app import main as run

        run()
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in _EXTRA:
            raise
        print(
            f"serving-proxy: {name} is not installed, expected it; in a checkout: make build, or pip install "
            "'.[cpu,serving-proxy]'",
            file=sys.stderr,
        )
        sys.exit(2)


__all__ = ["main"]

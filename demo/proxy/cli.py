# SPDX-License-Identifier: Apache-2.0
"""Implement the command line of the proxy's demo."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from demo.measure import ServingError
from demo.movielens import DataError
from demo.proxy.run import Options, run
from demo.terminal import Terminal, foreign_noise_to

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; return 0 if no request was lost and every score was right, 1 if not or on an error."""
    description = (
        "Deploy two versions of a click model with serving-proxy; split traffic, promote and roll back under load."
    )
    parser = argparse.ArgumentParser(prog="python -m demo.proxy", description=description)
    results = ROOT / "results"
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "demo", help="folder for data and models")
    parser.add_argument("--json", type=Path, default=results / "demo-proxy.json", help="file for the figures")
    parser.add_argument(
        "--picture", type=Path, default=results / "demo-proxy.png", help="picture of the dashboard to write"
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="length of each stage in seconds")
    parser.add_argument(
        "--optimize",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="optimize the models with graph-tools before they are served",
    )
    parser.add_argument(
        "--wait",
        action=argparse.BooleanOptionalAction,
        default=sys.stdin.isatty() and sys.stdout.isatty(),
        help="keep the proxy running at the end, to look at the dashboard (default: only on a terminal)",
    )
    chosen = parser.parse_args(arguments)
    if not 0.5 <= chosen.seconds <= 600:
        parser.error("--seconds must be between 0.5 and 600")
    console = Console(highlight=False)
    errors = Console(stderr=True, highlight=False)
    cache = chosen.cache.resolve()
    options = Options(
        root=ROOT,
        cache=cache,
        work=cache.parent / "demo-proxy",
        json=chosen.json.resolve(),
        picture=chosen.picture.resolve(),
        seconds=chosen.seconds,
        optimize=chosen.optimize,
        wait=chosen.wait,
    )
    try:
        with foreign_noise_to(options.work / "native.log"):
            return run(options, Terminal(console))
    except (DataError, ServingError) as error:
        errors.print("[bold red]make demo-proxy:[/]", escape(str(error)), soft_wrap=True)
        return 1

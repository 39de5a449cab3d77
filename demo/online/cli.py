# SPDX-License-Identifier: Apache-2.0
"""Implement the command line of the demo of online learning."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from demo.measure import ServingError
from demo.movielens import DataError
from demo.online.options import Options
from demo.online.run import run
from demo.terminal import Terminal, foreign_noise_to

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; return 0 if no request was lost and the last epoch was served, 1 if not or on an error."""
    parser = argparse.ArgumentParser(
        prog="python -m demo.online",
        description="Learn MovieLens-100K as a stream, and serve what was learned at once.",
    )
    results = ROOT / "results"
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "demo", help="folder for data")
    parser.add_argument("--json", type=Path, default=results / "demo-online.json", help="file for the figures")
    parser.add_argument("--picture", type=Path, default=results / "demo-online.png", help="file for the picture")
    parser.add_argument("--seconds", type=float, default=45.0, help="length of the stream in seconds")
    parser.add_argument("--share", type=float, default=1.0, help="share of the ratings, from the first one")
    parser.add_argument(
        "--optimize",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="let the proxy optimize the export in idle time; otherwise the demo does it first",
    )
    chosen = parser.parse_args(arguments)
    if not 1 <= chosen.seconds <= 3600 or not 0.01 <= chosen.share <= 1:
        parser.error("--seconds must be between 1 and 3600, --share between 0.01 and 1")
    cache = chosen.cache.resolve()
    options = Options(
        root=ROOT,
        cache=cache,
        work=cache.parent / "demo-online",
        json=chosen.json.resolve(),
        picture=chosen.picture.resolve(),
        seconds=chosen.seconds,
        share=chosen.share,
        optimize=chosen.optimize,
    )
    try:
        with foreign_noise_to(options.work / "native.log"):
            return run(options, Terminal(Console(highlight=False)))
    except (DataError, ServingError) as error:
        errors = Console(stderr=True, highlight=False)
        errors.print("[bold red]make demo-online:[/]", escape(str(error)), soft_wrap=True)
        return 1

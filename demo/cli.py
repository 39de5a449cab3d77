# SPDX-License-Identifier: Apache-2.0
"""Implement the command line of the demo."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from demo.measure import ServingError
from demo.movielens import DataError
from demo.run import Options, run
from demo.terminal import Terminal, foreign_noise_to

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; return 0 if every score agrees with TensorFlow's, 1 if not or on an error."""
    description = "Train a click model, optimize it, serve it from C, Python and Go, and compare each with TensorFlow."
    parser = argparse.ArgumentParser(prog="python -m demo", description=description)
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "demo", help="folder for data and models")
    parser.add_argument("--json", type=Path, default=ROOT / "results" / "demo.json", help="file for the figures")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds; each measures every host")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of one measurement in seconds")
    chosen = parser.parse_args(arguments)
    if chosen.rounds < 1 or not 0.05 <= chosen.seconds <= 600:
        parser.error("--rounds must be at least 1, --seconds between 0.05 and 600")
    console = Console(highlight=False)
    errors = Console(stderr=True, highlight=False)
    log = chosen.cache / "native.log"
    try:
        with foreign_noise_to(log):
            options = Options(ROOT, chosen.cache.resolve(), chosen.json.resolve(), chosen.rounds, chosen.seconds)
            return run(options, Terminal(console))
    except (DataError, ServingError) as error:
        errors.print("[bold red]make demo:[/]", escape(str(error)), soft_wrap=True)
        return 1

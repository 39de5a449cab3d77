# SPDX-License-Identifier: Apache-2.0
"""Measure the cost of reading a request and writing a response, with our codecs and with generated protobuf code.

    python -m load_tests.bench_codec [--rounds N] [--output FILE]

Runs the program libprocessor/bench/bench_codec.cc, which checks its outputs first, and compares the one-row request
with 39 inputs with its target.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from ._environment import describe_environment
from ._programs import ROOT, find_program, run_program
from ._report import Target, finish, make_console

__all__ = ["main", "one_row_targets"]

_LIMIT_US = 10.0


def one_row_targets(cases: Sequence[dict[str, Any]]) -> list[Target]:
    """Return, for each protocol, the time of reading and writing one row with our codecs.

    Parameters
    ----------
    cases : sequence of dict
        In the format of the program: `name` ("eas/1/decode/own"), `rows`, `median_ns`.

    Returns
    -------
    targets : list of Target
        Microseconds of CPU per request.
    """
    total: dict[str, float] = {}
    for case in cases:
        protocol, _, _, way = case["name"].split("/")
        if case["rows"] == 1 and way == "own":
            total[protocol] = total.get(protocol, 0.0) + case["median_ns"] / 1000
    return [
        Target(f"{protocol}, 39 inputs, 1 row, decode and encode, µs", value, _LIMIT_US, at_least=False)
        for protocol, value in total.items()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the results; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m load_tests.bench_codec", description=main.__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="number of rounds")
    parser.add_argument("--round-ms", type=float, default=50, help="length of a round in milliseconds")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument(
        "--output", type=Path, default=ROOT / "results" / "bench_codec.json", help="file of the results"
    )
    options = parser.parse_args(arguments)

    environment = describe_environment(ROOT)
    console = make_console()
    measured = run_program(find_program("bench_codec"), {"rounds": options.rounds, "round-ms": options.round_ms})
    targets = one_row_targets(measured["cases"])

    table = Table(title="Codecs: CPU time of one message")
    for heading in ("case", "bytes", "median µs", "min µs", "max µs"):
        table.add_column(heading, justify="left" if heading == "case" else "right")
    for case in measured["cases"]:
        times = (f"{case[key] / 1000:.2f}" for key in ("median_ns", "min_ns", "max_ns"))
        table.add_row(case["name"], f"{case['bytes']:,}", *times)
    console.print(table)
    results = {"environment": environment, "codec": measured}
    return finish(console, options.output, results, targets, options.strict)


if __name__ == "__main__":
    raise SystemExit(main())

# SPDX-License-Identifier: Apache-2.0
"""What reading a request and writing a response cost, by our codecs and by generated protobuf code.

    python -m load_tests.bench_codec [--rounds N] [--output FILE]

Runs the program libprocessor/bench/bench_codec.cc, which checks its answers first, and holds the one-row request of 39
inputs against its target.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from ._environment import describe_environment
from ._programs import ROOT, find_program, run_program
from ._report import Target, make_console, print_targets, write_results

__all__ = ["main", "one_row_targets"]

_LIMIT_US = 10.0


def one_row_targets(cases: Sequence[dict[str, Any]]) -> list[Target]:
    """Add up reading and writing of one row, for each protocol, by our codecs.

    Parameters
    ----------
    cases : sequence of dict
        As the program writes them: `name` ("eas/1/decode/own"), `rows`, `median_ns`.

    Returns
    -------
    targets : list of Target
        Microseconds of CPU a request.
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
    """Measure, show, and write the results; answer the exit status."""
    parser = argparse.ArgumentParser(prog="python -m load_tests.bench_codec", description=main.__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--round-ms", type=float, default=50)
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "bench_codec.json")
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
    print_targets(console, targets)
    write_results(
        options.output,
        {"environment": environment, "codec": measured, "targets": [target.to_json() for target in targets]},
    )
    console.print(f"Written to {options.output}")
    return 1 if options.strict and not all(target.ok for target in targets) else 0


if __name__ == "__main__":
    raise SystemExit(main())

# SPDX-License-Identifier: Apache-2.0
"""Measure many machines, as state directories of this one.

    python -m load_tests.bench_fleet                       # everything
    python -m load_tests.bench_fleet --only delivery       # some cases
    python -m load_tests.bench_fleet --quick               # the same code with tiny sizes

Each case runs in a process of its own. Prints a table for each and the targets, and writes results/bench_fleet.json.
docs/benchmarks/fleet.md explains the cases.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from load_tests._benchmark import BenchmarkParser
from load_tests._cases import run_cases
from load_tests._environment import describe_environment
from load_tests._programs import ROOT
from load_tests._report import Target
from load_tests.fleet import (
    delivery,
    dying_host,
    placement,
    ray_nodes,
    ray_silent,
    ray_takeover,
    replica,
    rollout,
    silent_node,
    small_hosts,
    takeover,
)
from load_tests.fleet.setup import Setup

__all__ = ["CASES", "main"]

CASES: dict[str, tuple[Callable[[Setup], dict[str, Any]], Callable[[dict[str, Any]], list[Target]]]] = {
    "delivery": (delivery.measure, delivery.judge),
    "takeover": (takeover.measure, takeover.judge),
    "takeover_bucket": (takeover.measure_bucket, takeover.judge),
    "dying_host": (dying_host.measure, dying_host.judge),
    "rollout": (rollout.measure, rollout.judge),
    "silent_node": (silent_node.measure, silent_node.judge),
    "small_hosts": (small_hosts.measure, small_hosts.judge),
    "placement": (placement.measure, placement.judge),
    "ray": (ray_nodes.measure, ray_nodes.judge),
    "ray_silent": (ray_silent.measure, ray_silent.judge),
    "ray_takeover": (ray_takeover.measure, ray_takeover.judge),
    "replica": (replica.measure, replica.judge),
}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = BenchmarkParser("bench_fleet", "Measure many machines.")
    parser.add_argument("--only", nargs="+", choices=tuple(CASES), default=list(CASES), help="cases (default: all)")
    return parser.parse(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write.

    Returns
    -------
    status : int
        0; 1 if an answer was wrong, something failed, or with --strict a target was missed.
    """
    options = _parse(arguments)
    return run_cases(options, "fleet", describe_environment(ROOT), CASES, Setup(options.quick), {})


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Measure how many occurrences of frequent keys admission filters lose, and how many rare keys they let in.

    python -m load_tests.elastic.admission            # four streams, five seeds: about two minutes
    python -m load_tests.elastic.admission --quick    # the same code with short streams and one seed

A stream of keys that follow Zipf's law passes through real tables in batches. A key is frequent if it occurs at
least five times in the whole stream, and rare otherwise. After the first tenth of the stream:

- lost: occurrences of frequent keys that had no row, so training would have left them out;
- recovered: share of the occurrences which exact counting loses that a filter does not lose;
- let in: share of all rare keys of the stream that have a row at its end.

The last stream has keys that come and go, so their rates are not constant, as all of these filters assume; it has no
targets.

Prints the medians over the seeds and writes results/elastic_admission.json.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np
from rich.table import Table

from elastic_training.admission import Admission, CountFilter, PoissonFilter
from elastic_training.reports.trial_table import TrialTable
from load_tests._environment import describe_environment
from load_tests._programs import ROOT
from load_tests._report import Target, finish, make_console, results_file

__all__ = ["FILTERS", "STREAMS", "judge", "main", "measure", "pass_stream", "passing_stream", "zipf_stream"]

THRESHOLD = 5
BATCH = 1_000
SEEDS = 5
RECOVERED, LET_IN = 0.5, 0.05
LENGTH, QUICK_LENGTH = 1_000_000, 100_000
#: Makes each filter from the length of the stream.
FILTERS: dict[str, Callable[[int], Admission]] = {
    "exact count": lambda length: CountFilter(THRESHOLD),
    "poisson, published": lambda length: PoissonFilter(THRESHOLD, horizon=length, prior="none"),
    "poisson, fitted prior": lambda length: PoissonFilter(THRESHOLD, horizon=length),
    "poisson, fitted prior, sketch": lambda length: PoissonFilter(
        THRESHOLD, horizon=length, expected_keys=max(length // 5, 1)
    ),
    "poisson, fitted prior, no end": lambda length: PoissonFilter(THRESHOLD),
}
Ints = np.ndarray[Any, np.dtype[np.int64]]


def zipf_stream(length: int, keys: int, exponent: float, seed: int) -> Ints:
    """Return keys [length] int64 in [0, keys), drawn with probabilities that follow Zipf's law."""
    sums = np.cumsum(np.arange(1, keys + 1, dtype=np.float64) ** -exponent)
    drawn = np.random.default_rng(seed).random(length) * sums[-1]
    found: Ints = np.searchsorted(sums, drawn).astype(np.int64)
    return found


def passing_stream(length: int, life: float, seed: int) -> Ints:
    """Return keys [about `length`] int64 that come and go.

    Parameters
    ----------
    length : int
    life : float
        Mean time from a key's birth to its occurrences, as a share of the stream; they decay exponentially. Keys are
        born evenly, and their popularity follows the law of Pareto that belongs to Zipf's with exponent 1.2.
    seed : int
    """
    random = np.random.default_rng(seed)
    born = random.uniform(-life, 1, int(0.4 * length))
    popularity = (1 - random.random(born.size)) ** -1.2
    keys = np.repeat(np.arange(born.size), random.poisson(popularity / popularity.sum() * length * (1 + life)))
    times = born[keys] + random.exponential(life, keys.size)
    inside = (times >= 0) & (times < 1)
    found: Ints = keys[inside][np.argsort(times[inside])].astype(np.int64)
    return found


#: Makes each stream from its length and a seed.
STREAMS: dict[str, Callable[[int, int], Ints]] = {
    "zipf 1.05, keys as many as occurrences": lambda length, seed: zipf_stream(length, length, 1.05, seed),
    "zipf 1.2, keys as many as occurrences": lambda length, seed: zipf_stream(length, length, 1.2, seed),
    "zipf 1.0, a fifth as many keys": lambda length, seed: zipf_stream(length, length // 5, 1.0, seed),
    "keys that live a tenth of the stream": lambda length, seed: passing_stream(length, 0.1, seed),
}


def pass_stream(stream: Ints, admission: Admission, seed: int) -> dict[str, Any]:
    """Pass a stream through a table.

    Returns
    -------
    figures : dict
        `lost`: occurrences of frequent keys after the first tenth without a row; `let_in`: share of rare keys with a
        row at the end; `rows`; `filter`: counters of the table and its filter.
    """
    table = TrialTable(admission, seed=seed)
    trained = np.concatenate([table.meet(stream[at : at + BATCH]) for at in range(0, stream.size, BATCH)])
    totals = np.bincount(stream)
    late = np.arange(stream.size) >= stream.size // 10
    rare = np.flatnonzero((totals > 0) & (totals < THRESHOLD))
    admitted = np.zeros(totals.size, np.bool_)
    admitted[table.keys()] = True
    return {
        "lost": int((~trained & late & (totals[stream] >= THRESHOLD)).sum()),
        "let_in": float(admitted[rare].mean()),
        "rows": int(admitted.sum()),
        "filter": table.stats(),
    }


def measure(quick: bool = False, seeds: int | None = None, tick: Callable[[str], None] = lambda text: None) -> Any:
    """Return the figures of every stream and filter, by seed and as medians."""
    length = QUICK_LENGTH if quick else LENGTH
    cases = []
    for stream_name, make_stream in STREAMS.items():
        turns: dict[str, list[dict[str, Any]]] = {name: [] for name in FILTERS}
        for seed in range(seeds or (1 if quick else SEEDS)):
            stream = make_stream(length, seed)
            for name, make in FILTERS.items():
                tick(f"{stream_name}, {name}, seed {seed}")
                turns[name].append(pass_stream(stream, make(stream.size), seed))
        exact = [turn["lost"] for turn in turns["exact count"]]
        for name, found in turns.items():
            for turn, lost in zip(found, exact, strict=True):
                turn["recovered"] = 1 - turn["lost"] / lost
            medians = {figure: median(turn[figure] for turn in found) for figure in ("recovered", "let_in", "rows")}
            cases.append({"stream": stream_name, "filter": name, "length": length, **medians, "turns": found})
    return {"cases": cases}


def judge(figures: Any) -> list[Target]:
    """Return the targets: the worst seed of each stream that follows Zipf's law must reach them."""
    targets = []
    for case in figures["cases"]:
        if case["filter"] == "poisson, fitted prior" and case["stream"].startswith("zipf"):
            worst = min(turn["recovered"] for turn in case["turns"]), max(turn["let_in"] for turn in case["turns"])
            name = f"{case['stream']}: "
            targets.append(Target(f"{name}occurrences recovered, worst seed", worst[0], RECOVERED, True))
            targets.append(Target(f"{name}rare keys let in, worst seed", worst[1], LET_IN, False))
    return targets


def show(figures: Any) -> Table:
    """Return the medians as a table."""
    table = Table("stream", "filter", "recovered", "rare keys let in", "rows")
    for case in figures["cases"]:
        numbers = f"{case['recovered']:.1%}", f"{case['let_in']:.2%}", f"{case['rows']:,.0f}"
        table.add_row(case["stream"], case["filter"], *numbers)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write; return 1 if with --strict a target was missed."""
    parser = argparse.ArgumentParser(description="Measure admission filters on streams that follow Zipf's law.")
    parser.add_argument("--quick", action="store_true", help="short streams and one seed; no targets")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--seeds", type=int, help=f"number of seeds (default {SEEDS})")
    options = parser.parse_args(arguments)
    console = make_console()
    environment = describe_environment(ROOT)
    with console.status("admission") as status:
        figures = measure(options.quick, options.seeds, status.update)
    console.print(show(figures))
    targets = [] if options.quick else judge(figures)
    results = {"benchmark": "elastic_admission", "quick": options.quick, "environment": environment, **figures}
    return finish(console, results_file("elastic_admission", options.quick), results, targets, options.strict)


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Measure how changes to other models affect one model's clients: deployments, switches and re-pinning, open loop."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from cost_model.cpu_time import busy_share
from load_tests._environment import usable_cpus
from load_tests._programs import ProgramError, find_library
from load_tests._report import Target
from load_tests.bench_serving import default_config
from load_tests.hosts.changes import KINDS, MODEL, Changes, Kind
from load_tests.hosts.large_model import ensure_large_model
from load_tests.hosts.memory import memory_of
from load_tests.hosts.proxy import Proxy, step_back
from load_tests.hosts.throughput import CLIENTS, send
from load_tests.latencies import Latencies, percentile
from load_tests.loadgen import open_loop
from load_tests.request_files import ensure_requests, name_model, read_requests, write_requests
from load_tests.workloads import ensure_model

__all__ = ["half_load", "judge", "measure", "print_courses", "summarize", "table"]

#: Largest p99 divided by that without changes, in addition to the spread of A against A.
P99 = 1.10
#: Largest difference of resident memory after any two cycles, divided by its median.
MEMORY = 0.05
#: Share of the first cycles that are excluded from the judgment of memory.
WARM_UP = 0.1
_WINDOW_S = 1.0
#: Half load: the CPUs, with the generator on them, are busy for this part of the time, within `_NEAR`.
_BUSY, _NEAR = 0.5, 0.05
#: Part of the first rate below which other processes keep the CPUs busy, so that half load is impossible.
_LEAST = 0.1
_LOOK_S = 2.0
_LOOKS = 6

Span = tuple[float, float]


def half_load(
    address: str, requests: Path, most: float, seconds: float = _LOOK_S, looks: int = _LOOKS
) -> tuple[float, float]:
    """Find the rate that keeps the machine's CPUs half busy.

    Half of the rate of a closed loop is not half load: a request costs several times the CPU time if CPUs become idle
    before it, and with random arrivals there is no queue that hosts can process in one batch.

    Parameters
    ----------
    most : float
        Largest allowed rate [requests/s]: half of the rate of a closed loop.
    seconds : float [s]
        Length of a look at the CPUs.
    looks : int
        Largest number of looks, each at a better rate.

    Returns
    -------
    rate : float
        Requests/s.
    busy : float
        Part of the CPU time that was used at this rate.
    """
    rate, busy = most, 1.0
    for _ in range(looks):
        with open_loop(address, requests, rate):
            time.sleep(seconds / 4)
            busy = busy_share(seconds)
        if abs(busy - _BUSY) < _NEAR or (rate >= most and busy < _BUSY):
            break
        rate = max(_LEAST * most, min(most, rate * min(2.0, max(0.25, _BUSY / busy))))
    return round(rate), busy


def _quiet(kind: Kind, changes: Changes, seconds: float) -> list[Span]:
    """Wait for some time without changes, divided among the states of a cycle if these differ."""
    spans = []
    for step in kind.cycle if kind.states else (None,):
        if step is not None:
            step(changes)
        begin = time.time()
        time.sleep(seconds / len(kind.cycle))
        spans.append((begin, time.time()))
    return spans


def _part(
    kind: Kind, changes: Changes, requests: Path, rate: float, options: argparse.Namespace, progress: Progress
) -> dict[str, Any]:
    """Measure one kind of changes: each round has two periods without changes, and then cycles."""
    kind.prepare(changes)
    changes.moments.clear()
    quiet: tuple[list[list[Span]], list[list[Span]]] = ([], [])
    busy: list[Span] = []
    memory = []
    task = progress.add_task(kind.title, total=options.cycles)
    rounds = min(options.churn_rounds, options.cycles)
    with (
        ThreadPoolExecutor(1, initializer=step_back) as operator,
        open_loop(changes.proxy.address, requests, rate) as loop,
    ):
        for number in range(rounds):
            # In turns, so that neither is always later.
            for spans in quiet if number % 2 == 0 else quiet[::-1]:
                spans.append(operator.submit(_quiet, kind, changes, options.quiet).result())
            begin = time.time()
            for _ in range(options.cycles * number // rounds, options.cycles * (number + 1) // rounds):
                for step in kind.cycle:
                    operator.submit(step, changes).result()
                memory.append(operator.submit(memory_of, changes.proxy.pid).result())
                progress.advance(task)
            busy.append((begin, time.time()))
    return {
        "asked_requests_per_s": rate,
        "failed": loop.failed,
        "late_p99_us": loop.late_us,
        "memory": memory,
    } | (summarize(loop.latencies, quiet, busy, changes.moments, kind))


def summarize(
    latencies: Latencies,
    quiet: tuple[list[list[Span]], list[list[Span]]],
    busy: list[Span],
    moments: dict[str, list[float]],
    kind: Kind,
) -> dict[str, Any]:
    """Compare latencies without changes (in two parts, A and A) and with changes.

    Parameters
    ----------
    quiet : tuple of two lists
        For each part, the spans of each round.
    busy : list
        The span of each round.

    Returns
    -------
    figures : dict
        `quiet`, `busy`: `requests`, `seconds`, `p50_us`, `p99_us` of all, `windows_us` (the p99 of each second);
        `rounds`: the p99 of each, `quiet_us` (A and A) and `busy_us`; `ratio`, the median over the rounds of that with
        changes over that without; `spread`, by how much the medians of A and A differ; `courses` by switch.
    """
    figures: dict[str, Any] = {}
    every = [span for part in quiet for spans in part for span in spans]
    for name, spans in (("quiet", every), ("busy", busy)):
        part = latencies.pooled(spans)
        if not part.size:
            raise ProgramError("loadgen", 0, f"no request was completed in the part {name!r}")
        figures[name] = {
            "requests": int(part.size),
            "seconds": sum(end - begin for begin, end in spans),
            "p50_us": percentile(part, 50),
            "p99_us": percentile(part, 99),
            "windows_us": latencies.windows(spans, _WINDOW_S),
        }
    # Other machines on this hardware disturb rounds: these stay in the results, but the other rounds decide.
    rounds: list[dict[str, Any]] = []
    for number, (part_a, part_b, span) in enumerate(zip(*quiet, busy, strict=True)):
        parts = [latencies.pooled(spans) for spans in (part_a, part_b, part_a + part_b, [span])]
        if not all(part.size for part in parts):
            raise ProgramError("loadgen", 0, f"no request was completed in a part of round {number + 1}")
        first, second, both, changing = (percentile(part, 99) for part in parts)
        rounds.append({"quiet_us": [first, second], "busy_us": changing, "ratio": changing / both})
    alone = [median(turn["quiet_us"][part] for turn in rounds) for part in (0, 1)]
    figures["rounds"] = rounds
    figures["ratio"] = median(turn["ratio"] for turn in rounds)
    figures["spread"] = abs(alone[0] - alone[1]) / (sum(alone) / 2)
    figures["courses"] = {
        name: {"switches": len(times), "course": latencies.around(times, kind.reach, kind.step)}
        for name, times in moments.items()
    }
    return figures


def measure(host: str, model: Path, options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    """Measure all kinds of changes with one kind of host."""
    library = find_library(options.library)
    anonymous = read_requests(ensure_requests(options.cache / "requests", "W2", 1, "tfserving"))
    config = default_config(usable_cpus())
    # It gets no requests. A quick run has a tiny one, which is loaded sooner.
    large = ensure_model("tiny", options.cache) if options.quick else ensure_large_model(options.cache, library)
    cases = []
    with tempfile.TemporaryDirectory() as folder, Proxy(host, Path(folder), options.maintenance_cpus) as proxy:
        # There are several models, so requests name theirs.
        requests = Path(folder) / "requests"
        write_requests(requests, [name_model(request, MODEL) for request in anonymous])
        changes = Changes(proxy, model.resolve(), large.resolve(), config)
        changes.serve()
        closed = send(proxy.address, "grpc", requests, CLIENTS[host][1], options.seconds)
        looks = 1 if options.quick else _LOOKS
        rate, used = half_load(proxy.address, requests, closed["rate"] / 2, min(_LOOK_S, options.seconds), looks)
        console.print(
            f"The {host} host serves {closed['rate']:,.0f} requests/s in a closed loop. At {rate:,} requests/s, the "
            f"rate during the changes, the CPUs are {used:.0%} busy."
        )
        with Progress(console=console, transient=True) as progress:
            for name in options.changes:
                figures = _part(KINDS[name], changes, requests, rate, options, progress)
                case = {"host": host, "changes": name, "cycles": options.cycles, "busy_share": used}
                cases.append(case | figures)
    return cases


def memory_spread(memory: Sequence[dict[str, int]], figure: str = "resident") -> float:
    """Return the largest difference of memory after cycles, divided by its median, without the first tenth."""
    values = sorted(sizes[figure] for sizes in memory[int(len(memory) * WARM_UP) :])
    return (values[-1] - values[0]) / values[len(values) // 2]


def judge(cases: Sequence[dict[str, Any]]) -> list[Target]:
    """Compare the cases with the targets: no request lost, p99, and memory."""
    targets = []
    for case in cases:
        title = f"{case['host']} host, {KINDS[case['changes']].title}"
        targets.append(Target(f"{title}: lost requests", float(sum(case["failed"].values())), 0.0, at_least=False))
        targets.append(Target(f"{title}: p99 over quiet", case["ratio"], P99 + case["spread"], at_least=False))
        targets.append(Target(f"{title}: memory differs by", memory_spread(case["memory"]), MEMORY, at_least=False))
    return targets


def table(cases: Sequence[dict[str, Any]]) -> Table:
    """Return a table of the cases."""
    found = Table(title="W2 optimized at half load while things change")
    for heading in ("host", "changes"):
        found.add_column(heading)
    for heading in ("requests", "lost", "quiet p99 ms", "changes", "by round", "A/A spread", "RSS MB", "its spread"):
        found.add_column(heading, justify="right")
    for case in cases:
        found.add_row(
            case["host"],
            f"{case['changes']} x {case['cycles']}",
            f"{case['busy']['requests']:,}",
            str(sum(case["failed"].values())),
            f"{case['quiet']['p99_us'] / 1000:.3f}",
            f"{case['busy']['p99_us'] / 1000:.3f}",
            f"{case['ratio']:.2f}",
            f"{case['spread']:.1%}",
            f"{case['memory'][-1]['resident'] / 1e6:,.0f}",
            f"{memory_spread(case['memory']):.1%}",
        )
    return found


def _cell(window: dict[str, float]) -> str:
    return f"{window['p50_us'] / 1000:.2f} / {window['p99_us'] / 1000:.2f}" if window["requests"] else ""


def print_courses(console: Console, cases: Sequence[dict[str, Any]]) -> None:
    """Print p50 and p99 around the switches of each case."""
    for case in cases:
        courses = case["courses"]
        found = Table(title=f"{case['host']} host, {case['changes']}: p50 / p99 in ms around each switch")
        found.add_column("from [s]", justify="right")
        for name, course in courses.items():
            found.add_column(f"{name} x {course['switches']}", justify="right")
        for rows in zip(*(course["course"] for course in courses.values()), strict=True):
            found.add_row(f"{rows[0]['from']:+.2f}", *map(_cell, rows))
        console.print(found)

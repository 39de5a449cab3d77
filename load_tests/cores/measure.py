# SPDX-License-Identifier: Apache-2.0
"""Measure the baseline alone, next to an overloaded variant with a plan and without, and around bursts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from rich.console import Console

from load_tests.cores.stage import BASELINE, MODEL, VARIANT, Stage
from load_tests.latencies import Latencies, percentile
from load_tests.loadgen import Loop, open_loop, run_loadgen

__all__ = [
    "BURSTS",
    "SIDES",
    "WINDOW_S",
    "Rates",
    "capacity",
    "late_windows",
    "measure_bursts",
    "measure_sides",
    "recovery_s",
]

#: The baseline's rate, as a part of the capacity of a core.
STEADY = 0.35
SIDES = ("alone", "planned", "shared", "alone again")
#: Settling time of the controller and the queues before a side is measured.
SETTLE_S = 4.0
WINDOW_S = 0.5
#: The baseline has recovered if it meets the SLO for this time.
HELD_S = 2.0
#: Settling time after clients have begun and cores have been moved.
_BEGUN_S = 2.0
#: Seconds before, during and after the burst.
BEFORE_S, BURST_S, AFTER_S = 6.0, 8.0, 8.0

Span = tuple[float, float]


@dataclass(frozen=True)
class Rates:
    """Define rates [requests/s] as parts of the capacity of one core, measured with four sequential clients.

    Requests that arrive at random cost more: a core that becomes idle between requests has slept. At 0.35 of the
    capacity, the baseline keeps its core busy for a little more than half of the time.
    """

    core: float

    @property
    def baseline(self) -> float:
        return STEADY * self.core

    @property
    def overload(self) -> float:
        return 2.0 * self.core


@dataclass(frozen=True)
class Burst:
    """Define the rates before, during and after a burst, as parts of the capacity of a core."""

    title: str
    calm: dict[int, float]
    burst: dict[int, float]
    judged_from: str
    """`begin` or `end` of the burst: the start of the recovery time."""


BURSTS = {
    "variant": Burst(
        "the variant, from idle to twice a core", {BASELINE: STEADY}, {BASELINE: STEADY, VARIANT: 2.0}, "begin"
    ),
    "baseline": Burst(
        "the baseline, to three times its rate",
        {BASELINE: STEADY, VARIANT: 0.2},
        {BASELINE: 3 * STEADY, VARIANT: 0.2},
        "end",
    ),
}


@dataclass
class Side:
    """Contain the results of the baseline's clients, pooled over rounds."""

    parts: list[Latencies] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    failed: dict[str, int] = field(default_factory=dict)
    shed: int = 0
    late_us: float = 0.0
    cpu: list[float] = field(default_factory=list)
    variant_per_s: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """Return the figures of this side."""
        latencies = Latencies.concatenated(self.parts)
        every = latencies.pooled(self.spans)
        rounds = [percentile(latencies.within(*span), 99) for span in self.spans]
        # Other machines on this hardware sometimes disturb a round; they must not distort the figure.
        found: dict[str, Any] = {"p50_us": percentile(every, 50), "p99_us": median(rounds), "rounds_p99_us": rounds}
        found |= {"pooled_p99_us": percentile(every, 99), "requests": int(every.size), "failed": self.failed}
        found |= {"late_p99_us": self.late_us, "generators_cpu": max(self.cpu), "variant_shed": self.shed}
        return found | {"variant_per_s": sum(self.variant_per_s) / max(1, len(self.variant_per_s))}


def capacity(stage: Stage, seconds: float) -> float:
    """Return the throughput of one core [requests/s], measured with four sequential clients."""
    report = run_loadgen(stage.divided.address, stage.requests[BASELINE], clients=4, time=f"{seconds:g}s", warmup="1s")
    return float(report["rate"])


def measure_sides(
    stage: Stage,
    rates: Rates,
    cpus: Sequence[int],
    generator_cpu: int,
    rounds: int,
    seconds: float,
    console: Console,
    settle_s: float = SETTLE_S,
) -> dict[str, dict[str, Any]]:
    """Measure all sides in turns, so that none is always the last one.

    Parameters
    ----------
    cpus : sequence of int
        CPUs that the plan gives to the baseline; in the run alone it is pinned to them.
    """
    sides = {name: Side() for name in SIDES}
    for number in range(rounds):
        for name in SIDES[number % len(SIDES) :] + SIDES[: number % len(SIDES)]:
            alone = name.startswith("alone")
            proxy = stage.shared if name == "shared" else stage.divided
            if proxy is stage.divided:
                stage.pin(",".join(map(str, cpus)) if alone else "auto")
            side = sides[name]
            with contextlib.ExitStack() as stack:
                begun = time.monotonic()
                mine = stack.enter_context(
                    open_loop(proxy.address, stage.requests[BASELINE], rates.baseline, generator_cpu, seed=number + 1)
                )
                loops = [mine]
                if not alone:
                    other = open_loop(
                        proxy.address, stage.requests[VARIANT], rates.overload, generator_cpu, seed=number + 101
                    )
                    loops.append(stack.enter_context(other))
                time.sleep(settle_s)
                begin = time.time()
                time.sleep(seconds)
                span = (begin, time.time())
            lasted = time.monotonic() - begun
            _add(side, loops, span, lasted)
            p99 = percentile(mine.latencies.within(*span), 99)
            console.print(f"[dim]round {number + 1}, {name}: p99 {p99 / 1000:.2f} ms[/]")
    stage.pin("auto")
    return {name: side.figures() for name, side in sides.items()}


def _add(side: Side, loops: Sequence[Loop], span: Span, lasted: float) -> None:
    mine, *others = loops
    side.parts.append(mine.latencies)
    side.spans.append(span)
    for status, count in mine.failed.items():
        side.failed[status] = side.failed.get(status, 0) + count
    side.late_us = max(side.late_us, mine.late_us)
    side.cpu.append(sum(loop.cpu_s for loop in loops) / lasted)
    for other in others:
        side.shed += sum(other.failed.values())
        # If it falls behind, requests that complete now were due long ago.
        side.variant_per_s.append(other.latencies.answered(*span) / (span[1] - span[0]))


def measure_bursts(
    stage: Stage, rates: Rates, slo_us: float, generator_cpu: int, repeats: int, console: Console
) -> dict[str, dict[str, Any]]:
    """Run bursts, and return the baseline's latencies around them."""
    found = {}
    for name, burst in BURSTS.items():
        begins: list[float] = []
        parts = []
        events = stage.divided.client.status()["last_event"]
        for number in range(repeats):
            latencies, begin = _burst(stage, rates, burst, generator_cpu, seed=1000 * number)
            begins.append(begin)
            parts.append(latencies)
        pooled = Latencies.concatenated(parts)
        zero = 0.0 if burst.judged_from == "begin" else BURST_S
        judged = [(begin + zero, begin + BURST_S + AFTER_S) for begin in begins]
        recovery = recovery_s(pooled, judged, slo_us)
        calm = late_windows(pooled, [(begin - BEFORE_S + _BEGUN_S, begin) for begin in begins], slo_us)
        after = late_windows(pooled, [(begin + recovery, end) for begin, end in judged], slo_us)
        moves = stage.divided.client.events(after=events, model=MODEL, limit=1000)
        found[name] = {
            "title": burst.title,
            "from": burst.judged_from,
            "recovery_s": recovery,
            "late_before": sum(calm) / max(1, len(calm)),
            "late_after": sum(after) / max(1, len(after)),
            "course": pooled.around(begins, BURST_S + AFTER_S, WINDOW_S),
            "moves": [
                {"at": move["at"] - max(begin for begin in begins if begin - BEFORE_S <= move["at"])} | move["data"]
                for move in moves
                if move["kind"] == "cores" and move["at"] >= begins[0] - BEFORE_S
            ],
        }
        before, since = found[name]["late_before"], found[name]["late_after"]
        console.print(
            f"[dim]burst of {burst.title}: within the SLO {recovery:.1f} s after its {burst.judged_from}; "
            f"{before:.0%} of the half-seconds before bursts were late, {since:.0%} after them[/]"
        )
    return found


def _burst(stage: Stage, rates: Rates, burst: Burst, generator_cpu: int, seed: int) -> tuple[Latencies, float]:
    """Send at the calm rates throughout, and add the burst's additional requests while it lasts."""
    address, requests = stage.divided.address, stage.requests
    mine: list[Loop] = []
    with contextlib.ExitStack() as calm:
        for version, part in burst.calm.items():
            loop = open_loop(address, requests[version], part * rates.core, generator_cpu, seed + version)
            loop_seen = calm.enter_context(loop)
            mine += [loop_seen] if version == BASELINE else []
        time.sleep(BEFORE_S)
        begin = time.time()
        with contextlib.ExitStack() as more:
            for version, part in burst.burst.items():
                extra = part - burst.calm.get(version, 0.0)
                if extra > 0:
                    loop = open_loop(address, requests[version], extra * rates.core, generator_cpu, seed + 10 + version)
                    loop_seen = more.enter_context(loop)
                    mine += [loop_seen] if version == BASELINE else []
            time.sleep(begin + BURST_S - time.time())
        time.sleep(AFTER_S)
    return Latencies.concatenated([loop.latencies for loop in mine]), begin


def late_windows(latencies: Latencies, spans: Sequence[Span], slo_us: float) -> list[bool]:
    """Return for each window of `WINDOW_S` whether its p99 exceeds the SLO.

    A window contains the requests of the same age from all spans. A window without completed requests counts as late.
    """
    late = []
    for number in range(min(int((end - begin) / WINDOW_S + 1e-6) for begin, end in spans)):
        part = latencies.pooled((span + number * WINDOW_S, span + (number + 1) * WINDOW_S) for span, _ in spans)
        late.append(not part.size or percentile(part, 99) > slo_us)
    return late


def recovery_s(latencies: Latencies, spans: Sequence[Span], slo_us: float) -> float:
    """Return the seconds until p99 stays within the SLO for `HELD_S`; the whole time if it does not."""
    late = late_windows(latencies, spans, slo_us)
    held = round(HELD_S / WINDOW_S)
    for number in range(len(late) - held + 1):
        if not any(late[number : number + held]):
            return number * WINDOW_S
    return len(late) * WINDOW_S

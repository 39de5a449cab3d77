# SPDX-License-Identifier: Apache-2.0
"""The published claims: which bench measures each, and which of its figures answer it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["CLAIMS", "Claim", "Measured"]

Results = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """What a file of results says of a claim: a sentence, and the same as numbers."""

    text: str
    figures: dict[str, float]


@dataclass(frozen=True)
class Claim:
    """A published claim.

    Attributes
    ----------
    title, published : str
    command : str
        What measures it, from the root of the checkout.
    file : str
        What the command writes into results/.
    read : callable
        Takes the figures out of that file; KeyError where they are not all there.
    """

    title: str
    published: str
    command: str
    file: str
    read: Callable[[Results], Measured]


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.0f} %"


def _listed(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {_percent(ratio)}" for name, ratio in figures.items())


def _ratios(results: Results, engine: str, other: str, figure: str) -> dict[str, float]:
    """Answer a figure of one engine over that of another in each case."""
    found = {}
    for case in results["cases"]:
        if engine in case["engines"] and other in case["engines"]:
            ratio = case["engines"][engine][figure] / case["engines"][other][figure]
            found[f"{case['workload']}x{case['rows']}"] = ratio
    if not found:
        raise KeyError(f"{engine} and {other}")
    return found


def _mean(values: Sequence[float]) -> float:
    """Answer the geometric mean, which is the one of ratios."""
    return math.exp(sum(map(math.log, values)) / len(values))


def _session_group(results: Results) -> Measured:
    found = _ratios(results, "group", "one", "requests_per_s")
    mean = _mean(list(found.values()))
    text = f"{_percent(mean)} requests/s over one session with all CPUs ({_listed(found)})"
    return Measured(text, {**found, "mean": mean})


def _precision(results: Results) -> Measured:
    found = _ratios(results, "bf16", "fp32", "requests_per_s")
    words = {one["precision"] for name, one in results["settings"]["precisions"].items() if name.endswith("bf16")}
    onednn = _ratios(results, "fp32", "stock", "requests_per_s")
    text = f"bf16 over fp32, both fused with oneDNN: {_listed(found)}; computed as {', '.join(sorted(words))}. "
    text += f"fp32 over stock: {_listed(onednn)}"
    return Measured(text, {f"bf16 over fp32, {name}": value for name, value in found.items()})


def _fusion(results: Results) -> Measured:
    found = _ratios(results, "fp32", "stock", "cpu_s_per_1000")
    seconds = {
        f"{case['workload']}x{case['rows']}": tuple(
            case["engines"][name]["cpu_s_per_1000"] for name in ("stock", "fp32")
        )
        for case in results["cases"]
    }
    shown = ", ".join(
        f"{name} {_percent(ratio)} ({seconds[name][0]:.2f} to {seconds[name][1]:.2f})" for name, ratio in found.items()
    )
    return Measured(f"CPU s per 1,000 requests: {shown}", found)


def _target(results: Results, begin: str) -> float:
    return float(next(one["value"] for one in results["targets"] if one["name"].startswith(begin)))


def _cost_model(results: Results) -> Measured:
    pool = _target(results, "baseline-pool / shared, mean")
    dynamic = _target(results, "dynamic / baseline-pool, moving")
    text = f"simulated box of 128 cores: baseline-pool {_percent(pool)} over shared, mean of all traffic and seeds; "
    text += f"dynamic {_percent(dynamic)} over baseline-pool under moving traffic"
    others = [
        one
        for one in results["comparisons"]
        if one["interference"] != 1.0 and (one["policy"], one["against"]) == ("baseline-pool", "shared")
    ]
    if others:
        scales = sorted({one["interference"] for one in others})
        parts = []
        for scale in scales:
            means = [one["mean"] for one in others if one["interference"] == scale]
            parts.append(f"{_percent(sum(means) / len(means))} at {scale:g} times the measured interference")
        text += f"; {', '.join(parts)}"
    if results["minutes_scale"] < 1:
        text += f" ({100 * results['minutes_scale']:g} % of the minutes)"
    return Measured(text, {"baseline-pool over shared": pool, "dynamic over baseline-pool": dynamic})


def _cut(results: Results) -> Measured:
    sizes = {
        one["name"].split(",")[1].split(":")[0].strip(): float(one["value"])
        for one in results["targets"]
        if one["name"].startswith("93 % zero rows")
    }
    speed = _target(results, "20 bags, one row")
    text = f"{_percent(speed)} speed of one row in stock TensorFlow (20 embedding bags)"
    if sizes:
        shown = ", ".join(f"{name} {-value:.1f} %" for name, value in sizes.items())
        text = f"size, table with 93 % zero rows, bit-exact: {shown}; {text}"
    else:
        text += "; size not measured in that run"
    return Measured(text, {**{f"smaller, {name} [%]": value for name, value in sizes.items()}, "speed": speed})


def _aot(results: Results) -> Measured:
    figures: dict[str, float] = {}
    texts = []
    for part, title in (("dense", "what follows W2's lookups"), ("whole", "the whole of W2")):
        cases = [case for case in results["cases"] if case["part"] == part]
        for engine in dict.fromkeys(name for case in cases for name in case["engines"] if name != "stock"):
            found = {
                f"{case['rows']} rows": case["engines"][engine]["requests_per_s"]
                / case["engines"]["stock"]["requests_per_s"]
                for case in cases
                if engine in case["engines"]
            }
            figures |= {f"{part}, {engine}, {rows}": ratio for rows, ratio in found.items()}
            texts.append(f"{title}, {engine}: {_listed(found)}")
    if not figures:
        raise KeyError("cases")
    text = "; ".join(texts) + "; over stock TensorFlow on one CPU"
    for name, reason in results["refused"].items():
        text += f". {name}: refused by the compiler ({reason})"
    return Measured(text, figures)


CLAIMS = {
    "session-group": Claim(
        "SessionGroup",
        "+50 %",
        "python -m load_tests.bench_session_group",
        "bench_session_group.json",
        _session_group,
    ),
    "precision": Claim("oneDNN and bf16", "+10 %", "make bench-fused", "bench_fused.json", _precision),
    "fusion": Claim("Subgraph fusion", "-10 % CPU", "make bench-fused", "bench_fused.json", _fusion),
    "cost-model": Claim("Cost model", "+30 %", "make bench-cost-model", "bench_cost_model.json", _cost_model),
    "cut": Claim(
        "Graph cut", "-90 % size, +50 % speed", "make bench-graph-tools", "bench_graph_tools.json", _cut
    ),
    "aot": Claim(
        "Split inference graph, compiled ahead of time", "+35 %", "python -m load_tests.bench_aot", "bench_aot.json",
        _aot,
    ),
}  # fmt: skip

# SPDX-License-Identifier: Apache-2.0
"""List the published claims, the benchmark that measures each, and the relevant figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["CLAIMS", "Claim", "Measured"]

Results = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """Contain the result for a claim from a result file: in a few words, in a sentence, and as numbers."""

    short: str
    text: str
    figures: dict[str, float]


@dataclass(frozen=True)
class Claim:
    """Describe a published claim.

    Attributes
    ----------
    title, published : str
    command : str
        Command that measures it, run from the root of the checkout.
    file : str
        File that the command writes into results/.
    read : callable
        Extracts the figures from that file; raises KeyError if some are missing.
    beside : Claim, optional
        Another measurement, whose figures are shown beside these if it has been made.
    """

    title: str
    published: str
    command: str
    file: str
    read: Callable[[Results], Measured]
    beside: Claim | None = None


def _percent(ratio: float) -> str:
    return f"{round(100 * (ratio - 1)):+d} %"


def _list_ratios(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {_percent(ratio)}" for name, ratio in figures.items())


def _range_text(figures: dict[str, float]) -> str:
    """Return the mean, with minimum and maximum if they differ, as text."""
    low, high = (_percent(pick(figures.values())) for pick in (min, max))
    return _percent(_mean(figures.values())) + (f" ({low} to {high})" if low != high else "")


def _case_name(workload: str, rows: int) -> str:
    return f"{workload} at {rows} row{'s' if rows > 1 else ''}"


def _ratios(results: Results, engine: str, other: str, figure: str) -> dict[str, float]:
    """Return a figure of one engine divided by that of another, for each case."""
    found = {}
    for case in results["cases"]:
        if engine in case["engines"] and other in case["engines"]:
            ratio = case["engines"][engine][figure] / case["engines"][other][figure]
            found[_case_name(case["workload"], case["rows"])] = ratio
    if not found:
        raise KeyError(f"{engine} and {other}")
    return found


def _mean(values: Iterable[float]) -> float:
    """Return the geometric mean, which is the appropriate one for ratios."""
    every = list(values)
    return math.exp(sum(map(math.log, every)) / len(every))


def _session_group(results: Results) -> Measured:
    found = _ratios(results, "group", "one", "requests_per_s")
    text = f"requests/s of a group over one session that has all CPUs: {_range_text(found)}; {_list_ratios(found)}"
    return Measured(f"{_range_text(found)} requests/s", text, {**found, "mean": _mean(found.values())})


def _precision(results: Results) -> Measured:
    onednn = _ratios(results, "fp32", "stock", "requests_per_s")
    found = _ratios(results, "bf16", "fp32", "requests_per_s")
    words = {result["precision"] for name, result in results["settings"]["precisions"].items() if name.endswith("bf16")}
    computed = ", ".join(sorted(words))
    text = f"requests/s, fused, fp32 over stock TensorFlow: {_range_text(onednn)}; {_list_ratios(onednn)}. "
    text += f"bf16 over fp32, computed as {computed}: {_range_text(found)}; {_list_ratios(found)}"
    figures = {f"fp32 over stock, {name}": value for name, value in onednn.items()}
    figures |= {f"bf16 over fp32, {name}": value for name, value in found.items()}
    named = "bf16" if computed == "bf16" else f"bf16 ({computed})"
    short = f"fp32 {_range_text(onednn)} requests/s; {named} over fp32 {_range_text(found)}"
    return Measured(short, text, figures)


def _fusion(results: Results) -> Measured:
    found = _ratios(results, "fp32", "stock", "cpu_s_per_1000")
    parts = []
    for case in results["cases"]:
        seconds = [case["engines"][name]["cpu_s_per_1000"] for name in ("stock", "fp32")]
        name = _case_name(case["workload"], case["rows"])
        parts.append(f"{name} {_percent(found[name])} ({seconds[0]:.2f} to {seconds[1]:.2f})")
    text = (
        f"CPU-seconds for 1,000 requests, fused in fp32 over stock TensorFlow: {_range_text(found)}; {', '.join(parts)}"
    )
    return Measured(f"{_range_text(found)} CPU-seconds for 1,000 requests", text, found)


def _target(results: Results, begin: str) -> float:
    return float(next(result["value"] for result in results["targets"] if result["name"].startswith(begin)))


def _slo_capacity(results: Results) -> Measured:
    names = {"none": "no plan", "pool": "baseline pool", "plan": "plan", "control": "control"}
    pairs = (("plan", "none"), ("pool", "none"), ("control", "plan"))
    met, missed = (
        {name: float(results["arms"][name][member]) for name in names} for member in ("requests_per_s", "missed_at")
    )
    figures, shown = {}, []
    for name, against in pairs:
        if met[name] and met[against]:
            title, ratio = f"{names[name]} over {names[against]}", met[name] / met[against]
            least, most = met[name] / missed[against], missed[name] / met[against]
            figures[title] = ratio
            shown.append(f"{title} {_percent(ratio)} ({_percent(least)} to {_percent(most)})")
    if not figures:
        raise KeyError("arms")
    text = "real hosts, requests/s at which every model meets its SLO: "
    text += ", ".join(f"{title} {met[name]:,.0f}" for name, title in names.items()) + f"; {', '.join(shown)}"
    simulated = (f"{title} {results['simulated'][name]:,.0f}" for name, title in names.items())
    text += f"; the simulator predicts {', '.join(simulated)}"
    return Measured(f"{', '.join(shown)}, on real hosts", text, figures)


def _cost_model(results: Results) -> Measured:
    pool = _target(results, "baseline-pool / shared, mean")
    dynamic = _target(results, "dynamic / baseline-pool, moving")
    text = (
        f"simulated machine of 128 cores: baseline-pool {_percent(pool)} over shared, mean of all traffic and seeds; "
    )
    text += f"dynamic {_percent(dynamic)} over baseline-pool under moving traffic"
    scales: dict[float, list[float]] = {}
    for result in results["comparisons"]:
        if result["interference"] != 1.0 and (result["policy"], result["against"]) == ("baseline-pool", "shared"):
            scales.setdefault(result["interference"], []).append(result["mean"])
    if scales:
        parts = [
            f"{_percent(sum(means) / len(means))} at {scale:g} times the measured interference"
            for scale, means in sorted(scales.items())
        ]
        text += f"; baseline-pool over shared {', '.join(parts)}"
    part = f" ({100 * results['minutes_scale']:g} % of the minutes)" if results["minutes_scale"] < 1 else ""
    text += part
    short = f"simulated, 128 cores{part}: baseline pool {_percent(pool)}, the controller {_percent(dynamic)} more"
    return Measured(short, text, {"baseline-pool over shared": pool, "dynamic over baseline-pool": dynamic})


def _cut(results: Results) -> Measured:
    sizes = {
        result["name"].split(",")[1].split(":")[0].strip(): float(result["value"])
        for result in results["targets"]
        if result["name"].startswith("93 % zero rows")
    }
    speed = _target(results, "20 bags, one row")
    if not sizes:
        raise KeyError("93 % zero rows")
    shown = ", ".join(f"{name} {-value:.1f} %" for name, value in sizes.items())
    text = f"bytes of an export whose table has 93 % zero rows, scores bit for bit: {shown}; "
    text += f"requests/s of one row in stock TensorFlow (20 embedding bags): {_percent(speed)}"
    figures = {**{f"smaller, {name} [%]": value for name, value in sizes.items()}, "speed": speed}
    return Measured(f"{-min(sizes.values()):.0f} % size, {_percent(speed)} speed", text, figures)


def _aot(results: Results) -> Measured:
    figures: dict[str, float] = {}
    texts, shorts = [], []
    for part, title, brief in (
        ("dense", "what follows W2's lookups, split from them", "split dense part"),
        ("whole", "the whole of W2", "whole model"),
    ):
        cases = [case for case in results["cases"] if case["part"] == part]
        brought = []
        for engine in dict.fromkeys(name for case in cases for name in case["engines"] if name != "stock"):
            found = {
                f"{case['rows']} row{'s' if case['rows'] > 1 else ''}": case["engines"][engine]["requests_per_s"]
                / case["engines"]["stock"]["requests_per_s"]
                for case in cases
                if engine in case["engines"]
            }
            figures |= {f"{part}, {engine}, {rows}": ratio for rows, ratio in found.items()}
            texts.append(f"{title}, {engine}: {_list_ratios(found)}")
            brought.append(f"{'fused' if engine == 'fused' else engine.replace('stock, ', '')} {_range_text(found)}")
        if brought:
            shorts.append(f"{brief}: {', '.join(brought)}")
    if not figures:
        raise KeyError("cases")
    text = f"requests/s over stock TensorFlow on one CPU: {'; '.join(texts)}"
    for name, reason in results["refused"].items():
        text += f". {name}: refused by the compiler ({reason})"
    return Measured("; ".join(shorts), text, figures)


CLAIMS = {
    "session-group": Claim(
        "SessionGroup",
        "+50 %",
        "make bench-session-group",
        "bench_session_group.json",
        _session_group,
    ),
    "precision": Claim(
        "oneDNN and bf16",
        "+10 %",
        "make bench-fused",
        "bench_fused.json",
        _precision,
    ),
    "fusion": Claim(
        "Subgraph fusion",
        "-10 % CPU",
        "make bench-fused",
        "bench_fused.json",
        _fusion,
    ),
    "cost-model": Claim(
        "Cost model",
        "+30 %",
        "make bench-slo-capacity",
        "bench_slo_capacity.json",
        _slo_capacity,
        Claim("Cost model, simulated", "+30 %", "make bench-cost-model", "bench_cost_model.json", _cost_model),
    ),
    "cut": Claim(
        "Graph cut",
        "-90 % size, +50 % speed",
        "make bench-graph-tools CASES='zero-rows speed'",
        "bench_graph_tools.json",
        _cut,
    ),
    "aot": Claim(
        "Split inference graph, compiled ahead of time",
        "+35 %",
        "make bench-aot",
        "bench_aot.json",
        _aot,
    ),
}

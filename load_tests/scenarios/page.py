# SPDX-License-Identifier: Apache-2.0
"""Write the result of a scenario as one HTML page without scripts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

__all__ = ["render"]

_STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em }
table { border-collapse: collapse; margin: .5em 0 1.5em } th, td { padding: .3em .8em; text-align: left }
.numbers td, .numbers th { text-align: right } .numbers td:first-child, .numbers th:first-child { text-align: left }
tr:nth-child(even) { background: #8881 } th { border-bottom: 1px solid #888 } h2 { margin: 1.5em 0 .3em }
.PASS { color: #1e9141 } .FAIL { color: #d9382b } .small { color: #888; margin: .2em 0 }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif }
"""
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 1000.0, 260.0, 60.0, 24.0, 28.0


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<table class="{kind}"><tr>{head}</tr>{body}</table>'


def _text(x: float, y: float, words: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="currentColor">{escape(words)}</text>'


def _course(phases: Sequence[dict[str, Any]], limit_ms: float) -> str:
    """Draw the p99 of each second, over phases, with a logarithmic axis and the clients' limit."""
    values = [value / 1000 for phase in phases for value in phase["windows_us"]]
    if len(values) < 2:
        return ""
    low = 10.0 ** math.floor(math.log10(min(values)))
    high = 10.0 ** math.ceil(math.log10(max(*values, limit_ms)) + 1e-9)
    whole = float(sum(phase["seconds"] for phase in phases))

    def across(seconds: float) -> float:
        return _LEFT + (_WIDTH - _LEFT) * seconds / whole

    def down(ms: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * math.log(high / ms) / math.log(high / low)

    drawn, begin, points = [], 0.0, []
    for number, phase in enumerate(phases):
        end, floor = begin + phase["seconds"], _HEIGHT - _BOTTOM
        shade = "#8882" if number % 2 else "#8881"
        drawn.append(
            f'<rect x="{across(begin):.1f}" y="{_TOP}" width="{across(end) - across(begin):.1f}" '
            f'height="{floor - _TOP}" fill="{shade}"/>' + _text(across((begin + end) / 2), _TOP - 8, phase["phase"])
        )
        drawn.append(_text(across(begin), _HEIGHT - 10, f"{begin:.0f}", "start"))
        # A second without a response has no p99, so the others are spread over the phase.
        step = phase["seconds"] / max(1, len(phase["windows_us"]))
        points += [
            f"{across(begin + (second + 0.5) * step):.1f},{down(value / 1000):.1f}"
            for second, value in enumerate(phase["windows_us"])
        ]
        begin = end
    drawn.append(_text(_WIDTH, _HEIGHT - 10, f"{whole:.0f} s", "end"))
    decades = round(math.log10(high / low))
    marks = [low * 10**index for index in range(decades + 1)]
    drawn += [_text(_LEFT - 8, down(ms) + 4, f"{ms:g} ms" if ms < 1000 else f"{ms / 1000:g} s", "end") for ms in marks]
    drawn.append(
        f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{down(limit_ms):.1f}" y2="{down(limit_ms):.1f}" stroke="#d9382b" '
        f'stroke-dasharray="6 4"/>' + _text(_WIDTH - 4, down(limit_ms) - 5, f"{limit_ms:g} ms", "end")
    )
    drawn.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="#2a6fdb" stroke-width="1.5"/>')
    picture = f'<svg viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img">{"".join(drawn)}</svg>'
    return f"<h2>p99 of each second</h2>{picture}"


def _verdicts(targets: Sequence[dict[str, Any]]) -> str:
    rows = []
    for target in targets:
        word = "PASS" if target["ok"] else "FAIL"
        limit = f"at {'least' if target['at_least'] else 'most'} {target['limit']:.4g}"
        title = target["name"].partition(": ")[2] or target["name"]
        rows.append([f'<b class="{word}">{word}</b>', escape(title), f"{target['value']:.4g}", limit])
    return _table(["", "what", "measured", "limit"], rows)


def render(results: dict[str, Any], other: str | None) -> str:
    """Return the page; `other` is the name of the generator's own report in the same folder, or None."""
    environment, settings = results["environment"], results["settings"]
    rows = [
        [
            escape(result["phase"]),
            f"{result['asked_requests_per_s']:,.0f}",
            f"{result['sent']:,}",
            f"{result['answered']:,}",
            escape(", ".join(f"{kind}: {count:,}" for kind, count in result["failed"].items()) or "none"),
            *(f"{result[name] / 1000:.2f}" if name in result else "" for name in ("p50_us", "p99_us", "max_us")),
        ]
        for result in results["phases"]
    ]
    missed = sum(not target["ok"] for target in results["targets"])
    word = "FAIL" if missed else "PASS"
    counted = f"{missed} of {len(results['targets'])} limits missed" if missed else "all limits kept"
    # The limits are meant for the usual duration of the scenario.
    quick = ", shorter than usual: the figures mean little" if results["quick"] else ""
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items() if version)
    commit = f"{(environment['commit'] or 'none')[:12]}{', files modified' if environment['modified'] else ''}"
    machine = f"{environment['cpu']}, {environment['cpus']} CPUs, commit {commit}, {environment['time']}"
    setting = f"{settings['host']} host, {settings['workload']}, {settings['rate']:g} requests/s, "
    setting += f"{settings['seconds']:g} s, seed {settings['seed']}, sent by {settings['generator']}"
    setting += ", all CPUs shared" if settings["shared"] else ""
    link = f'<p><a href="{escape(other)}">The report of locust</a></p>' if other else ""
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(results['scenario'])}: {word}</title>"
        f'<meta name=viewport content="width=device-width"><style>{_STYLE}</style>'
        f"<h1>{escape(results['scenario'])}: {escape(results['title'])}</h1>"
        f'<p><b class="{word}">{word}</b>: {counted}{quick}</p>'
        + "".join(f'<p class="small">{escape(line)}</p>' for line in (setting, machine, versions))
        + f"<h2>Limits</h2>{_verdicts(results['targets'])}"
        + "<h2>Phases</h2>"
        + _table(["phase", "asked/s", "sent", "answered", "failed", "p50 ms", "p99 ms", "max ms"], rows, "numbers")
        + '<p class="small">Latency counts from when a request was to be sent.</p>'
        + f"{_course(results['phases'], results['slo_ms'])}{link}</html>\n"
    )

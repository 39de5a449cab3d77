# SPDX-License-Identifier: Apache-2.0
"""The verdict of a scenario as one HTML page without scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

__all__ = ["render"]

_STYLE = """
body { font: 15px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em }
table { border-collapse: collapse; margin: 1em 0 } th, td { padding: .3em .8em; text-align: right }
th:first-child, td:first-child { text-align: left } tr:nth-child(even) { background: #8881 }
.PASS { color: #187a33 } .FAIL { color: #b3261e } th { border-bottom: 1px solid #888 }
svg { width: 100%; height: 9em; background: #8881 }
"""


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(one)}</th>" for one in headings)
    body = "".join("<tr>" + "".join(f"<td>{one}</td>" for one in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _course(phases: Sequence[dict[str, Any]]) -> str:
    """Draw the p99 of each second."""
    values = [value / 1000 for phase in phases for value in phase["windows_us"]]
    if len(values) < 2:
        return ""
    top = max(values)
    points = " ".join(
        f"{100 * number / (len(values) - 1):.2f},{100 - 95 * value / top:.2f}" for number, value in enumerate(values)
    )
    line = f'<polyline points="{points}" fill="none" stroke="#2a6fdb" vector-effect="non-scaling-stroke"/>'
    picture = f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img">{line}</svg>'
    return f"<h2>p99 of each second, at most {top:.1f} ms</h2>{picture}"


def render(results: dict[str, Any], other: str | None) -> str:
    """Write the page; `other` is the name of the generator's own report beside it, if there is one."""
    environment = results["environment"]
    rows = [
        [
            escape(one["phase"]),
            f"{one['asked_requests_per_s']:,.0f}",
            f"{one['sent']:,}",
            f"{one['answered']:,}",
            escape(", ".join(f"{kind}: {count}" for kind, count in one["failed"].items()) or "none"),
            *(f"{one[name] / 1000:.2f}" if name in one else "" for name in ("p50_us", "p99_us", "max_us")),
        ]
        for one in results["phases"]
    ]
    verdicts = []
    for one in results["targets"]:
        word = "PASS" if one["ok"] else "FAIL"
        relation = "at least" if one["at_least"] else "at most"
        figure = f"{one['value']:.4g}"
        verdicts.append(
            [f'<b class="{word}">{word}</b>', escape(one["name"]), figure, f"{relation} {one['limit']:.4g}"]
        )
    link = f'<p><a href="{escape(other)}">The report of the generator</a></p>' if other else ""
    machine = f"{environment['cpu']}, {environment['cpus']} CPUs, commit {environment['commit']}, {environment['time']}"
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(results['scenario'])}</title>"
        f"<style>{_STYLE}</style><h1>{escape(results['scenario'])}: {escape(results['title'])}</h1>"
        f"<p>{escape(machine)}</p>{_table(['', 'limit', 'measured', ''], verdicts)}"
        + _table(["phase", "asked/s", "sent", "answered", "failed", "p50 ms", "p99 ms", "max ms"], rows)
        + f"{_course(results['phases'])}{link}</html>\n"
    )

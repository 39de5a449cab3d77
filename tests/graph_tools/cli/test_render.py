# SPDX-License-Identifier: Apache-2.0
"""Test that real reports with long names and large numbers fit terminals of several widths."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from graph_tools import cut, diff, inspect, verify
from graph_tools.cli.render_cut import render_cut
from graph_tools.cli.render_diff import render_diff
from graph_tools.cli.render_inspect import render_inspect
from graph_tools.cli.render_verify import render_verify
from graph_tools.options import CutOptions
from helpers.graph_tools import cut_models

LONG = "input_layer/C12_embedding/embedding_weights/part_0/concatenated"
WIDTHS = pytest.mark.parametrize("width", [80, 100, 140])


def shown(render: Callable[[dict[str, Any], Console], None], report: dict[str, Any], width: int) -> list[str]:
    console = Console(width=width, no_color=True)
    with console.capture() as found:
        render(report, console)
    return [line.rstrip() for line in found.get().splitlines()]


def tables(lines: list[str]) -> list[str]:
    """Leave out what is no table: paths and sentences, which the terminal breaks."""
    kept, inside = [], False
    for place, line in enumerate(lines):
        inside = (inside and line != "") or (place + 2 < len(lines) and lines[place + 2].startswith("─"))
        kept += [line] * inside
    return kept


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cut_models.build_sparse(tmp_path_factory.mktemp("sparse") / "model")


@pytest.fixture(scope="module")
def written(sparse: Path) -> dict[str, Any]:
    return cut(sparse, sparse.parent / "out", samples=2).to_json()


def enlarged(report: dict[str, Any], count: int) -> dict[str, Any]:
    (table,) = report["tables"]
    made = copy.deepcopy(report)
    big = {"keys": 1_234_567_890, "dim": 128, "zero_rows": 1_148_147_000, "source_bytes": 632_098_765_432}
    forecast = dict.fromkeys(table["forecast"], 999_900_000_000)
    big["bytes"] = 44_246_913_580
    made["tables"] = [table | big | {"forecast": forecast} | {"name": f"{LONG}_{number}"} for number in range(count)]
    return made


@WIDTHS
def test_cut(written: dict[str, Any], width: int) -> None:
    lines = shown(render_cut, enlarged(written, 14), width)
    assert all(len(line) <= width for line in tables(lines))
    assert sum("632.1 GB  44.2 GB" in line for line in lines) == 12
    assert any(line.split()[:3] == ["and", "2", "more"] and "1.3 TB" in line for line in lines)
    assert any("1,234,567,890 x 128" in line for line in lines) == (width > 80)


@WIDTHS
def test_forecast(sparse: Path, width: int) -> None:
    report = cut(sparse, None, dry_run=True, options=CutOptions(embedding_dtype="bf16")).to_json()
    lines = shown(render_cut, enlarged(report, 13), width)
    assert all(len(line) <= width for line in tables(lines))
    assert sum(line.count("999.9 GB") for line in lines) == 13 * 5
    assert not any("[bold]" in line for line in lines)


def test_reasons_that_are_alike_are_counted_together(written: dict[str, Any]) -> None:
    report = copy.deepcopy(written)
    refused = [["a", "weights of 'a' are used twice"], ["b", "weights of 'b' are used twice"], ["c", "no bias"]]
    report["passes"] = [{"name": "fold", "applied": 0, "refused": refused, "nodes_before": 9, "nodes_after": 9}]
    lines = shown(render_cut, report, 100)
    assert any("2 x weights of … are used twice" in line for line in lines)
    assert any("1 x no bias" in line for line in lines)


@WIDTHS
def test_inspect(sparse: Path, tiny_model: Path, width: int) -> None:
    report = inspect(sparse, tiny_model).to_json()
    report["models"][0]["tables"][0]["name"] = LONG
    report["models"][1]["variables"][0]["duplicate_of"] = LONG
    lines = shown(render_inspect, report, width)
    assert all(len(line) <= width for line in tables(lines))
    assert any("40 x 8" in line and "1.6 kB" in line for line in lines)


@WIDTHS
def test_verify(sparse: Path, written: dict[str, Any], width: int) -> None:
    report = verify(sparse, written["target"]["path"], samples=2).to_json()
    worse = {"bit_exact": False, "max_abs_difference": "inf", "max_rel_difference": 1.2345e-17, "beyond": 123_456_789}
    more = {"name": LONG, "nan_a": 100_000, "nan_b": 100_001, "auc_a": 0.5, "auc_b": 0.25, "rank_correlation": -0.5}
    report["outputs"][0] |= worse | more
    lines = shown(render_verify, report, width)
    assert all(len(line) <= width for line in tables(lines))
    assert any("123,456,789  " in line and "100000 / 100001  0.50000 / 0.25000" in line for line in lines)


@WIDTHS
def test_diff(sparse: Path, tiny_model: Path, width: int) -> None:
    report = diff(sparse, tiny_model).to_json()
    report["tables"][0]["name"] = LONG
    lines = shown(render_diff, report, width)
    assert all(len(line) <= width for line in tables(lines))
    assert any("40 rows" in line for line in lines)

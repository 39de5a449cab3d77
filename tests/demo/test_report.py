# SPDX-License-Identifier: Apache-2.0
"""Check the report of the demo: the table fits into 80 columns, and the JSON contains every round."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from demo import report
from demo.c_host import CHost
from demo.go_host import GoHost
from demo.measure import Timing
from demo.python_host import PythonHost
from demo.report import Line
from demo.stock import Stock

ROUNDS = [Timing(1234.5, 90.0, 1500.0), Timing(98_765.4, 80.0, 12_500.0), Timing(2000.0, 70.0, 900.0)]
ENVIRONMENT = {"cpu": "A CPU", "cpus": 2, "tensorflow": "2.21.0", "recprocessor": "0.1.0", "python": "3.11.2"}
SETTINGS = {"clients": 2, "rounds": 3, "seconds": 0.8}


def make_lines(difference: float = 2e-7) -> list[Line]:
    lines = []
    for rows in (1, 100):
        lines.append(Line(Stock.name, "tensorflow", rows, 0.78886, None, 0, ROUNDS, 0.82))
        lines.append(Line(GoHost.name, "go_grpc", rows, 0.78886, difference, 92_500, ROUNDS, 0.82))
    return lines


def test_names_fit_into_their_column() -> None:
    assert max(len(way.name) for way in (Stock, CHost, PythonHost, GoHost)) <= 21


def printed(renderable: object, width: int = 80) -> str:
    console = Console(width=width, force_terminal=False, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def test_table_fits_80_columns() -> None:
    text = printed(report.table(make_lines()))
    assert "…" not in text
    for wanted in (
        "1 row per request",
        "100 rows per request",
        Stock.name,
        "0.7889",
        "2.0e-07",
        "2,000",
        "0.080",
        "1.50",
    ):
        assert wanted in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80


@pytest.mark.parametrize(
    ("us", "text"), [(7.4, "0.007"), (999.4, "0.999"), (999.9, "1.00"), (1234.0, "1.23"), (12_345.0, "12.3")]
)
def test_milliseconds_keep_about_three_digits(us: float, text: str) -> None:
    assert report.milliseconds(us) == text


@pytest.mark.parametrize(
    ("difference", "agrees"), [(None, True), (0.0, True), (1e-5, True), (1.1e-5, False), (float("nan"), False)]
)
def test_line_agrees_within_the_tolerance(difference: float | None, agrees: bool) -> None:
    assert Line("way", "way", 1, 0.8, difference, 10, ROUNDS, 0.82).agrees is agrees


def test_sentences_name_the_host_with_different_scores() -> None:
    text = "\n".join(report.sentences(make_lines(3e-5), ENVIRONMENT, SETTINGS, None))
    assert f"differ from TensorFlow's by more than 1e-05: {GoHost.name}, rows: 1;" in text


def test_a_line_of_another_precision_has_a_tolerance_of_its_own() -> None:
    faster = [Timing(10.0 * timing.requests_per_s, 9.0, 12.0) for timing in ROUNDS]
    lines = [*make_lines(), Line("optimized fp32, C", "optimized_fp32_c", 1, 0.789, 2e-7, 92_500, faster, 0.9)]
    lines += [Line("optimized bf16, C", "optimized_bf16_c", 1, 0.788, 3e-3, 92_500, faster, 0.7, 1e-2)]
    text = "\n".join(report.sentences(lines, ENVIRONMENT, SETTINGS, None))
    assert (
        "All scores agree with TensorFlow's within 1e-05 (optimized bf16, C: 0.01): 92,500 scores in each line." in text
    )
    assert "10.0 times TensorFlow's requests/s with 1 row per request" in text


def test_sentences_explain_why_go_is_missing() -> None:
    text = "\n".join(report.sentences(make_lines(), ENVIRONMENT, SETTINGS, "Go is not installed"))
    assert "was not measured: Go is not installed." in text
    assert "92,500" in text


def test_json_contains_medians_and_every_round() -> None:
    found = json.loads(report.as_json(make_lines(), ENVIRONMENT, SETTINGS))
    assert found["environment"] == ENVIRONMENT
    assert found["settings"] == SETTINGS
    assert [(entry["way"], entry["rows_per_request"]) for entry in found["results"]] == [
        ("tensorflow", 1),
        ("go_grpc", 1),
        ("tensorflow", 100),
        ("go_grpc", 100),
    ]
    entry = found["results"][1]
    assert entry["median"] == {"requests_per_s": 2000.0, "p50_us": 80.0, "p99_us": 1500.0}
    assert entry["model_megabytes"] == 0.82
    assert len(entry["rounds"]) == 3
    assert entry["max_abs_difference"] == 2e-7


def test_environment_of_a_folder_without_history(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "9.8.7"\n')
    found = report.environment(tmp_path)
    assert found["commit"] is None
    assert found["recprocessor"] == "9.8.7"
    assert found["cpus"] >= 1

# SPDX-License-Identifier: Apache-2.0
"""Render the results as a table with sentences below it, and as JSON."""

from __future__ import annotations

import dataclasses
import json
import platform
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from demo.measure import TOLERANCE, Timing, median, usable_cpus


@dataclasses.dataclass(frozen=True)
class Line:
    """Contain the results of one host with requests of one size.

    Attributes
    ----------
    way : str
        Its name in the table.
    key : str
        Its name in the JSON.
    rows : int
        Rows per request.
    auc : float
        Area under the ROC curve over the held-out rows.
    difference : float or None
        Largest difference of a score from TensorFlow's; None for TensorFlow itself.
    compared : int
        Number of scores that were compared.
    rounds : sequence of Timing
        One timing per round.
    megabytes : float
        Size of the model that it served [MB].
    tolerance : float
        Largest difference that counts as agreement.
    """

    way: str
    key: str
    rows: int
    auc: float
    difference: float | None
    compared: int
    rounds: Sequence[Timing]
    megabytes: float
    tolerance: float = TOLERANCE

    @property
    def agrees(self) -> bool:
        # Written so that NaN does not agree.
        return self.difference is None or self.difference <= self.tolerance


def table(lines: Sequence[Line]) -> Table:
    """Return the lines as a table, with a section for each number of rows per request."""
    found = Table(
        title="MovieLens-100K click model, held-out rows",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        title_style="bold",
    )
    found.add_column("served by", no_wrap=True)
    for title in ("MB", "AUC", "max diff", "requests/s", "p50 ms", "p99 ms"):
        found.add_column(title, justify="right", no_wrap=True)
    for place, line in enumerate(lines):
        if not place or line.rows != lines[place - 1].rows:
            found.add_section()
            found.add_row(f"[bold]{line.rows} row{'s' if line.rows > 1 else ''} per request[/]")
        timing = median(line.rounds)
        difference = "" if line.difference is None else f"{line.difference:.1e}"
        found.add_row(
            f"  {line.way}",
            f"{line.megabytes:.2f}",
            f"{line.auc:.4f}",
            difference if line.agrees else f"[bold red]{difference}[/]",
            f"{timing.requests_per_s:,.0f}",
            milliseconds(timing.p50_us),
            milliseconds(timing.p99_us),
        )
    return found


def milliseconds(us: float) -> str:
    """Return a time [µs] in milliseconds with about three digits."""
    ms = us / 1000.0
    return f"{ms:.3f}" if ms < 0.9995 else f"{ms:.2f}" if ms < 9.995 else f"{ms:.1f}"


def as_json(lines: Sequence[Line], environment: dict[str, Any], settings: dict[str, Any]) -> str:
    """Return the same results as JSON, with every round and the environment."""
    results = []
    for line in lines:
        entry = {"way": line.key, "rows_per_request": line.rows, "auc": line.auc, "scores_compared": line.compared}
        entry |= {"max_abs_difference": line.difference, "median": dataclasses.asdict(median(line.rounds))}
        entry |= {"model_megabytes": line.megabytes}
        results.append(entry | {"rounds": [dataclasses.asdict(timing) for timing in line.rounds]})
    return json.dumps({"environment": environment, "settings": settings, "results": results}, indent=2) + "\n"


def sentences(
    lines: Sequence[Line], environment: dict[str, Any], settings: dict[str, Any], no_go: str | None
) -> Iterator[str]:
    """Yield sentences on the results and their environment; `no_go` says why the Go server is missing, if it is."""
    wrong = [f"{line.way}, rows: {line.rows}" for line in lines if not line.agrees]
    if wrong:
        yield f"[bold red]Scores differ from TensorFlow's by more than {_tolerances(lines)}: {'; '.join(wrong)}.[/]"
    else:
        compared = " and ".join(f"{number:,}" for number in sorted({line.compared for line in lines} - {0}))
        yield f"All scores agree with TensorFlow's within {_tolerances(lines)}: {compared} scores in each line."
    yield (
        f"A request of one row is a single rating; one of {lines[-1].rows} rows ranks as many films for a user. "
        f"{settings['clients']} clients send, each one request at a time; medians of {settings['rounds']} rounds."
    )
    gains = [
        f"{gain:.1f} times TensorFlow's requests/s with {rows} row{'s' if rows > 1 else ''}"
        for rows, gain in _gains(lines).items()
    ]
    if gains:
        yield (
            f"The optimized lines serve the output of `graph-tools optimize`: in fp32 {' and '.join(gains)} per "
            "request. MB is the size of the model on disk; this export has no optimizer state to remove."
        )
    if no_go:
        yield f"The Go server was not measured: {no_go}."
    else:
        yield "The Go line includes gRPC and a client in Python, which share the CPUs with the server."
    yield (
        f"{environment['cpu']}, {environment['cpus']} CPUs; TensorFlow {environment['tensorflow']}, "
        f"recprocessor {environment['recprocessor']}, Python {environment['python']}."
    )


def _gains(lines: Sequence[Line]) -> dict[int, float]:
    """Return, by rows per request, the throughput of the optimized fp32 model divided by TensorFlow's."""
    rate = {(line.key, line.rows): median(line.rounds).requests_per_s for line in lines}
    return {
        line.rows: rate["optimized_fp32_c", line.rows] / rate["tensorflow", line.rows]
        for line in lines
        if line.key == "optimized_fp32_c"
    }


def _tolerances(lines: Sequence[Line]) -> str:
    """Describe the tolerance, and the lines that have another one."""
    others = {line.way: line.tolerance for line in lines if line.tolerance != TOLERANCE}
    return f"{TOLERANCE:g}" + "".join(f" ({way}: {tolerance:g})" for way, tolerance in others.items())


def environment(root: Path) -> dict[str, Any]:
    """Return the commit of the folder `root`, the machine and the versions."""
    import tensorflow as tf

    return {
        "commit": _commit(root),
        "cpu": cpu_model(),
        "cpus": usable_cpus(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "recprocessor": _release(root),
    }


def cpu_model() -> str:
    """Return the name of the processor from the kernel."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def _release(root: Path) -> str:
    return str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])


def _commit(root: Path) -> str | None:
    """Return the commit, with "+" if files have changed since; None outside a repository."""
    try:
        commit = _git(root, "rev-parse", "--short=12", "HEAD")
        return commit + ("+" if _git(root, "status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()

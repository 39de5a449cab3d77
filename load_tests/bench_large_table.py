# SPDX-License-Identifier: Apache-2.0
"""Convert a table that is far larger than the allowed memory, and measure the memory used: `graph-tools cut`,
as users run it, with its verification.

    python -m load_tests.bench_large_table              # 20 GB, about a quarter of an hour; 33 GB of disk
    python -m load_tests.bench_large_table --gb 2

Half of the rows are zero, so that the result is half as large and dropped rows are checked too. Writes
results/bench_large_table.json and the report of the cut; the models are deleted. docs/benchmarks/graph_tools.md
explains more.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from load_tests._environment import describe_environment
from load_tests._programs import ROOT
from load_tests._report import Target, finish, make_console

__all__ = ["main"]

# Same value as in `load_tests.workloads.big_table`, whose import loads much. The largest resident memory of a program
# includes that of its parent, so this program must stay small.
ROW_BYTES = 72
ZERO_SHARE = 0.5
# The conversion of a table of this size needs almost no memory besides that of TensorFlow itself.
_SMALL_ROWS = 10_000
_DISK_SHARE = 1.7


def run_measured(command: list[str]) -> tuple[float, int]:
    """Run a program, and return its duration [s] and its largest resident memory [bytes].

    Raises
    ------
    subprocess.CalledProcessError
        If the program failed.
    """
    begun = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        _, status, usage = os.wait4(process.pid, 0)
    except BaseException:
        process.kill()
        raise
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return time.monotonic() - begun, usage.ru_maxrss * 1024


def convert(rows: int, memory_limit: float, folder: Path) -> dict[str, Any]:
    """Export a table, cut it, and return the figures.

    Parameters
    ----------
    rows : int
    memory_limit : float [GB]
    folder : Path
        Folder for the models; it must be empty.
    """
    source, target, report = folder / "in", folder / "out", folder / "report.json"
    generator = [sys.executable, "-m", "load_tests.workloads.big_table", str(source), "--rows", str(rows)]
    subprocess.run([*generator, "--zero-share", str(ZERO_SHARE)], check=True, cwd=ROOT)
    limit = ["--memory-limit", str(memory_limit), "--report", str(report)]
    seconds, resident = run_measured([sys.executable, "-m", "graph_tools", "cut", str(source), str(target), *limit])
    found = json.loads(report.read_text())
    sizes = {name: _bytes(path) for name, path in (("source", source), ("target", target))}
    shutil.rmtree(source)
    shutil.rmtree(target)
    return {
        "rows": rows,
        "source_bytes": sizes["source"],
        "target_bytes": sizes["target"],
        "seconds": seconds,
        "resident_bytes": resident,
        "verification": {key: found["verification"][key] for key in ("passed", "bit_exact", "requests", "tables")},
    }


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def main(arguments: list[str] | None = None) -> int:
    """Measure; return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=20.0, help="size of the table [GB]")
    parser.add_argument("--memory-limit", type=float, default=1.5, help="memory limit of the cut [GB]")
    parser.add_argument("--most", type=float, default=2.0, help="target: largest resident memory [GB]")
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache" / "large-table", help="folder for the models")
    parser.add_argument(
        "--json", type=Path, default=ROOT / "results" / "bench_large_table.json", help="file of the results"
    )
    options = parser.parse_args(arguments)
    if options.gb <= options.memory_limit:
        parser.error(f"--gb {options.gb:g}: expected more than --memory-limit {options.memory_limit:g}")
    options.folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(options.folder).free
    if free < _DISK_SHARE * options.gb * 1e9:
        parser.error(f"{options.folder}: {free / 1e9:.0f} GB free, expected at least {_DISK_SHARE * options.gb:.0f} GB")
    console = make_console()
    # Before the run: the checkout may change during it, and the load must be that of other programs.
    environment = describe_environment(ROOT)
    figures = {}
    for name, rows in (("small", _SMALL_ROWS), ("large", int(options.gb * 1e9 / ROW_BYTES))):
        scratch = Path(tempfile.mkdtemp(dir=options.folder))
        try:
            with console.status(f"A table of {rows} rows …"):
                figures[name] = convert(rows, options.memory_limit, scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    large = figures["large"]
    (table,) = large["verification"]["tables"]
    assert large["verification"]["bit_exact"]
    assert table["equal"]
    assert table["rows"] == large["rows"]
    resident = large["resident_bytes"]
    targets = [Target(f"{options.gb:g} GB table: resident memory [GB]", resident / 1e9, options.most, False)]
    figures["growth_bytes"] = resident - figures["small"]["resident_bytes"]
    figures["megabytes_per_second"] = large["source_bytes"] / 1e6 / large["seconds"]
    console.print(
        f"        read, converted, written and verified in {large['seconds']:.0f} s, "
        f"{figures['megabytes_per_second']:.0f} MB/s of the source; a small table takes "
        f"{figures['small']['resident_bytes'] / 1e9:.2f} GB"
    )
    results = {
        "environment": environment,
        "memory_limit_gb": options.memory_limit,
        "zero_share": ZERO_SHARE,
        "figures": figures,
    }
    return finish(console, options.json, results, targets, strict=True)


if __name__ == "__main__":
    sys.exit(main())

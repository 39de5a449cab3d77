# SPDX-License-Identifier: Apache-2.0
"""Check that a table beyond the memory limit needs little more memory than a small one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from load_tests.bench_large_table import main, run_measured


def test_memory_of_the_program_is_measured_and_failures_are_raised() -> None:
    seconds, resident = run_measured([sys.executable, "-c", "print(len(bytes(range(256)) * 800_000))"])
    assert seconds < 60
    assert resident > 200e6
    with pytest.raises(subprocess.CalledProcessError, match="status 3"):
        run_measured([sys.executable, "-c", "raise SystemExit(3)"])


def test_a_table_that_is_not_large_and_a_full_disk_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for wrong, words in (("0.5", "--gb 0.5: expected more than --memory-limit 1.5"), ("1e9", "GB free, expected")):
        with pytest.raises(SystemExit):
            main(["--gb", wrong, "--folder", str(tmp_path / "models")])
        assert words in capsys.readouterr().err


@pytest.mark.slow
def test_a_table_above_the_limit_takes_no_more_than_the_limit(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "load_tests.bench_large_table", "--gb", "0.2", "--memory-limit", "0.1"]
    # A separate program, because the resident memory of a child includes that of its parent.
    results = tmp_path / "results.json"
    subprocess.run([*command, "--folder", str(tmp_path / "models"), "--json", str(results)], check=True, timeout=300)
    found = json.loads(results.read_text())
    (table,) = found["figures"]["large"]["verification"]["tables"]
    assert (table["rows"], table["beyond"]) == (found["figures"]["large"]["rows"], 0)
    assert found["figures"]["large"]["source_bytes"] > 199e6
    # The limit itself, and blocks of rows that are the same for every size.
    assert found["figures"]["growth_bytes"] < 180e6
    assert [target["ok"] for target in found["targets"]] == [True]
    assert not list((tmp_path / "models").iterdir())

# SPDX-License-Identifier: Apache-2.0
"""Test that tables larger than memory are converted in chunks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[2]
ROOT = TESTS.parent


def convert(path: Path, gigabytes: float, limit: int, row_type: str = "fp32") -> dict[str, Any]:
    script = TESTS / "helpers" / "models" / "convert_generated_table.py"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(TESTS)]), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, str(script), str(path), str(gigabytes), str(limit), row_type]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    finally:
        shutil.rmtree(path / "big", ignore_errors=True)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    record = answer["record"]
    assert record["dropped"]["equal_absent"] == record["zero_rows"]
    assert abs(answer["written_bytes"] - record["bytes"]) < 4000
    return answer


def test_table_is_converted_in_a_tenth_of_its_size(tmp_path: Path) -> None:
    answer = convert(tmp_path, 0.4, 64 << 20, "int8")
    assert answer["resident_bytes"] - answer["resident_bytes_before"] < 0.1 * answer["source_bytes"]
    assert answer["written_bytes"] < 0.12 * answer["source_bytes"]


@pytest.mark.long
def test_twenty_gigabytes_are_converted_within_two_resident(tmp_path: Path) -> None:
    answer = convert(tmp_path, 20.0, 1 << 30)
    assert answer["resident_bytes"] < 2e9
    assert answer["source_bytes"] / answer["cpu_seconds"] > 100e6

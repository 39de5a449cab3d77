# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from load_tests.bench_fleet import CASES, main
from load_tests.fleet.clients import SERVICE_CONFIG
from load_tests.fleet.dying_host import judge


def test_clients_use_the_service_config_of_the_document(repository: Path) -> None:
    text = (repository / "docs" / "fleet.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    assert json.loads(block) == SERVICE_CONFIG


def test_one_lost_request_misses_the_target() -> None:
    targets = judge({"killed": {"lost": 1}, "drained": {"lost": 0}})
    assert [target.ok for target in targets] == [False, True]


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_quick_run_finds_no_fault(tmp_path: Path, case: str) -> None:
    output = tmp_path / "fleet.json"
    assert main(["--quick", "--only", case, "--output", str(output)]) == 0
    found = json.loads(output.read_text())
    assert "failed" not in json.dumps(found)

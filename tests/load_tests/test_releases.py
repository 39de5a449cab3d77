# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from pathlib import Path

from load_tests._releases import check_out


def test_checkout_of_a_run_that_was_ended_gets_its_python_environment(tmp_path: Path) -> None:
    for _ in range(2):
        check_out(tmp_path, "HEAD")
        assert (tmp_path / ".venv").readlink() == Path(sys.prefix)

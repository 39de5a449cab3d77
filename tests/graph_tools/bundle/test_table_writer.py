# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graph_tools.bundle.table_reader import read_table
from graph_tools.bundle.table_writer import write_table


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(entries=st.dictionaries(st.binary(max_size=30), st.binary(max_size=200), max_size=60), block=st.integers(1, 500))
def test_written_files_are_read_again(tmp_path: Path, entries: dict[bytes, bytes], block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graph_tools.bundle.table_writer._BLOCK_BYTES", block)
        with (tmp_path / "table").open("wb") as out:
            write_table(out, sorted(entries.items()))
    assert read_table(tmp_path / "table") == sorted(entries.items())

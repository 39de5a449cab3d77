# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import json
from pathlib import Path

from graph_tools.report.cut import CutReport, Side, is_lossy
from graph_tools.report.manifest import PLACE, sha256, write_manifest


def test_every_file_but_the_manifest_is_summed(tmp_path: Path) -> None:
    for name in ("saved_model.pb", "variables/a", PLACE.as_posix()):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    write_manifest(CutReport(Side("in", "GraphDef", 1, 0, 0, 10), {}), tmp_path)
    found = json.loads((tmp_path / PLACE).read_text())
    assert found["files"] == {
        name: hashlib.sha256(name.encode()).hexdigest() for name in ("saved_model.pb", "variables/a")
    }
    assert (found["verification"], found["lossy"]) == (None, False)
    assert sha256(tmp_path / "variables" / "a") == found["files"]["variables/a"]


def test_what_makes_a_table_lossy() -> None:
    def table(dtype: str, source: str = "float32", rows: int = 0) -> dict[str, object]:
        return {"dtype": dtype, "source_dtype": source, "lossy_rows": rows}

    assert not is_lossy(table("fp32"))
    assert not is_lossy(table("fp32", "float64"))
    assert not is_lossy(table("bf16", "bfloat16"))
    assert is_lossy(table("bf16"))
    assert is_lossy(table("fp16", "bfloat16"))
    assert is_lossy(table("int8", "float16"))
    assert is_lossy(table("fp32", rows=1))

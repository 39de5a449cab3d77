# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import json
from pathlib import Path

from graph_tools.options import CutOptions
from graph_tools.report.cut import CutReport, ModelSize
from graph_tools.report.manifest import PLACE, sha256, write_manifest


def test_the_manifest_has_the_checksum_of_every_other_file(tmp_path: Path) -> None:
    for name in ("saved_model.pb", "variables/a", PLACE.as_posix()):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    write_manifest(CutReport(ModelSize("in", "GraphDef", 1, 0, 0, 10), CutOptions()), tmp_path)
    found = json.loads((tmp_path / PLACE).read_text())
    assert found["files"] == {
        name: hashlib.sha256(name.encode()).hexdigest() for name in ("saved_model.pb", "variables/a")
    }
    assert (found["verification"], found["lossy"]) == (None, False)
    assert sha256(tmp_path / "variables" / "a") == found["files"]["variables/a"]

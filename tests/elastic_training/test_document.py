# SPDX-License-Identifier: Apache-2.0
"""The programs in docs/elastic_training.md run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import elastic_training as et

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "elastic_training.md").read_text(encoding="utf-8")


def test_snippets_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "document"}
    for block in re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE):
        # Blocks continue each other. TensorFlow needs their source for tf.function.
        path = tmp_path / f"block_{len(names)}.py"
        path.write_text(block)
        exec(compile(block, str(path), "exec"), names)
    shapes, header, *others, columns, coded, losses, settings = capsys.readouterr().out.splitlines()
    assert "'history': (2, 16)" in shapes
    assert shapes.endswith(" 4")
    assert header.split()[:3] == ["table", "setting", "keys"]
    # A forecast of two tables with four settings, a report, and an explanation.
    heading, *tables, numbers = (line.split() for line in others[8:12])
    assert heading[:3] == ["table", "features", "dim"]
    # Keras numbers its layers in the order of the process.
    assert all(name.startswith("hash_embedding") and dim == "16" for name, _, dim, *_ in tables)
    assert [int(rows) for _, _, _, rows, *_ in tables] == [0, 3]
    assert numbers[0] == "3"
    assert "key 'ann': it has no row: counted" in others[12]
    assert columns == "[8 4] [2, 1, 0]"
    assert coded == "[32768, 20000, 200]"
    first, *_, last = eval(losses)
    assert last < first
    assert "TableConfig(name='hash_embedding" in settings


def test_every_public_name_is_documented() -> None:
    internal = {"RowContents", "Constant", "Normal", "TruncatedNormal", "Uniform", "Zeros"}
    assert not [name for name in et.__all__ if name not in internal and not re.search(rf"\b{name}\b", TEXT)]

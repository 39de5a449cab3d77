# SPDX-License-Identifier: Apache-2.0
"""The programs in docs/elastic_training.md and beside it run."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import elastic_training as et
from helpers.elastic.exported import published

ROOT = Path(__file__).resolve().parents[2]


def _text(page: str) -> str:
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], list[str]]:
    """A function that runs the blocks of a page, which continue each other, and returns the lines that they print."""

    def run(page: str) -> list[str]:
        monkeypatch.chdir(tmp_path)
        names: dict[str, Any] = {"__name__": "document"}
        for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", _text(page), re.DOTALL | re.MULTILINE)):
            # TensorFlow needs their source for tf.function.
            path = tmp_path / f"block_{number}.py"
            path.write_text(block)
            exec(compile(block, str(path), "exec"), names)
        return capsys.readouterr().out.splitlines()

    return run


def test_snippets_run(run: Callable[[str], list[str]]) -> None:
    shapes, header, *others, losses, settings = run("elastic_training.md")
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
    first, *_, last = eval(losses)
    assert last < first
    assert "TableConfig(name='hash_embedding" in settings


def test_layers_that_save_memory_run(run: Callable[[str], list[str]]) -> None:
    assert run("elastic_training_memory.md") == ["[8 4] [2, 1, 0]", "[32768, 20000, 200]", "0"]


def test_recipes_run(run: Callable[[str], list[str]]) -> None:
    read, size, losses_fall, *lasso = run("elastic_training_recipes.md")
    assert read == "(2, 4) [ True False]"
    assert (size, losses_fall) == ("3", "True")
    few, some, many = (int(re.findall(r": (\d+) of 450 rows are zero", line)[0]) for line in lasso)
    # The most is that of the 400 rare keys, and perhaps some others.
    assert few < 100 <= some <= many
    assert many >= 400


def test_trainer_publishes_and_restarts(run: Callable[[str], list[str]]) -> None:
    assert run("elastic_training_publish.md") == [
        "begins at 0, servers know {}",
        "begins at 48, servers know {'clicks/0': 64}",
    ]
    assert published(Path("export"), Path("timeline")).streams == {"clicks/0": 96}


def test_every_public_name_is_documented() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("elastic_training*.md"))
    internal = {"RowContents", "Constant", "Normal", "TruncatedNormal", "Uniform", "Zeros"}
    assert not [name for name in et.__all__ if name not in internal and not re.search(rf"\b{name}\b", text)]

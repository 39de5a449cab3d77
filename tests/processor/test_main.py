# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import processor


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(processor.__file__).parent.parent)
    return subprocess.run(
        [sys.executable, "-m", "processor", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": root} | environment,
    )


def test_library_path_is_the_file() -> None:
    done = run("--library-path")
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()) == processor.library_path()


def test_include_path_serves_a_compiler() -> None:
    done = run("--include-path")
    assert done.returncode == 0, done.stderr
    for header in ("processor.h", "deeprec.h"):
        assert (Path(done.stdout.strip()) / "processor" / header).is_file()


def test_version_names_library_abi_and_tensorflow() -> None:
    done = run("--version")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["recprocessor", "ABI", "TensorFlow"]
    assert "TensorFlow 2." in done.stdout


def test_info_is_json(tiny_model: Path) -> None:
    done = run("--info", str(tiny_model))
    assert done.returncode == 0, done.stderr
    info = json.loads(done.stdout)
    assert info["state"] == "ready"
    assert "serving_default" in json.dumps(info["signatures"])


def test_failure_is_one_line_and_status_1(tmp_path: Path) -> None:
    done = run("--info", str(tmp_path / "nowhere"))
    assert done.returncode == 1
    assert "nowhere" in done.stderr
    assert "Traceback" not in done.stderr
    done = run("--library-path", PROCESSOR_LIBRARY="/nowhere.so")
    assert done.returncode == 1
    assert "/nowhere.so" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["--nonsense"], ["--version", "--library-path"]])
def test_wrong_use_is_status_2(arguments: list[str]) -> None:
    assert run(*arguments).returncode == 2


def test_docs_snippets_run(
    repository: Path, tmp_path: Path, string_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (repository / "docs/python.md").read_text(encoding="utf-8")
    snippets = [part.split("```", 1)[0] for part in text.split("```python\n")[1:]]
    assert len(snippets) >= 4
    (tmp_path / "models").mkdir()
    (tmp_path / "models/ranking").symlink_to(string_model)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for number, snippet in enumerate(snippets):
        exec(compile(snippet, f"docs/python.md, snippet {number}", "exec"), names)
    scores = names["scores"]
    assert isinstance(scores, np.ndarray)
    assert scores.tolist() == [10.5, 40.25]


def test_docs_name_everything_public(repository: Path) -> None:
    text = (repository / "docs/python.md").read_text(encoding="utf-8") + (repository / "docs/errors.md").read_text(
        encoding="utf-8"
    )
    methods = [name for name in vars(processor.Model) if not name.startswith("_")]
    for name in (*methods, "library_path", "load_library", "TensorSpec", "Signature", "ProcessorError"):
        assert name in text, f"docs/python.md does not mention {name}"

# SPDX-License-Identifier: Apache-2.0
"""Check that command lines say how to install a missing package; no package index contains recprocessor."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize(
    ("package", "module"),
    [("graph_tools", "typer"), ("graph_tools", "google_crc32c"), ("cost_model", "typer"), ("serving_proxy", "typer")],
)
def test_missing_package_is_reported_with_its_extra(package: str, module: str, tmp_path: Path) -> None:
    name = package.replace("_", "-")
    code = (
        f"import sys; sys.modules[{module!r}] = None; sys.argv = [{name!r}, 'inspect', {str(tmp_path)!r}]; "
        f"from {package}.cli import main; main()"
    )
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert answer.returncode == 2
    assert f"{name}: {module} is not installed, expected it; in a checkout: make build, or pip" in answer.stderr
    assert "Traceback" not in answer.stderr
    (extras,) = re.findall(r"pip install '\.\[([\w,-]+)\]'", answer.stderr)
    assert set(extras.split(",")) == {"cpu", name}
    assert {"cpu", name} <= PROJECT["optional-dependencies"].keys()


def test_make_build_installs_what_the_command_lines_need() -> None:
    # Each group contains the same packages as the extra of that name.
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]

    def packages(group: str) -> set[str]:
        found: set[str] = set()
        for package in groups[group]:
            found |= {package} if isinstance(package, str) else packages(package["include-group"])
        return found

    for name in PROJECT["scripts"]:
        assert set(PROJECT["optional-dependencies"][name]) <= packages("command-lines"), name
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^build:.* \$\(VENV\)/\.stamp-command-lines$", makefile, re.MULTILINE)
    assert re.search(r"^build:.* \$\(VENV\)/\.stamp-in-place ", makefile, re.MULTILINE)


def test_no_document_installs_from_a_package_index() -> None:
    packages = ("docs", "processor", "graph_tools", "cost_model", "serving_proxy", "elastic_training")
    folders = (*packages, "libprocessor", "demo", "load_tests")
    endings = {".md", ".py", ".go", ".c", ".cc"}
    texts = [path for name in folders for path in (ROOT / name).rglob("*") if path.suffix in endings]
    assert len(texts) > 300
    told = re.compile(r"pip install '?recprocessor")
    assert not [path for path in (*ROOT.glob("*.md"), *texts) if told.search(path.read_text(encoding="utf-8"))]

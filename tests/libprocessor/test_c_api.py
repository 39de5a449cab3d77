# SPDX-License-Identifier: Apache-2.0
"""The headers from plain C: `test_c_api*.c` compiled as strict C99 and run with a real model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.models.host_model import export_host_model
from helpers.system.programs import INCLUDE, LINK, require, run, run_ok

SOURCES = Path(__file__).parent
STRICT = ["cc", "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"]


@pytest.mark.parametrize("header", ["processor.h", "deeprec.h"])
def test_header_is_c99_by_itself(header: str, tmp_path: Path) -> None:
    require("cc")
    source = tmp_path / "include.c"
    source.write_text(f"#include <processor/{header}>\n#include <processor/{header}>\nint main(void) {{ return 0; }}\n")
    run_ok([*STRICT, "-fsyntax-only", f"-I{INCLUDE}", source])


def test_every_function_is_used() -> None:
    functions: set[str] = set()
    for header in ("processor.h", "deeprec.h"):
        text = (INCLUDE / "processor" / header).read_text(encoding="utf-8")
        functions |= set(re.findall(r"^PROCESSOR(?:_DEEPREC)?_API\s[^;(]*?(\w+)\(", text, re.MULTILINE))
    assert len(functions) == 49
    used = "".join(path.read_text(encoding="utf-8") for path in SOURCES.glob("test_c_api*.c"))
    assert {name for name in functions if not re.search(rf"\b{name}\b", used)} == set()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the model that the programs know."""
    return export_host_model(tmp_path_factory.mktemp("c_api_model") / "7")


@pytest.mark.parametrize(
    ("name", "folders"), [("test_c_api", []), ("test_c_api_drop_in", []), ("test_c_api_host", ["state"])]
)
def test_c_api(name: str, folders: list[str], model: Path, tmp_path: Path) -> None:
    require("cc")
    program = tmp_path / name
    options = ["-D_POSIX_C_SOURCE=200809L", "-O1", "-g", f"-I{INCLUDE}"]
    run_ok([*STRICT, *options, SOURCES / f"{name}.c", "-o", program, *LINK])
    ended = run([program, model, *(tmp_path / folder for folder in folders)])
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_host_of_an_earlier_abi_version_is_served_by_the_library_of_today(
    version: str, model: Path, tmp_path: Path
) -> None:
    require("cc")
    program, state = tmp_path / "old_host", tmp_path / "state"
    state.mkdir()
    options = ["-D_POSIX_C_SOURCE=200809L", "-O1", "-g", f"-I{SOURCES / 'abi' / version}"]
    run_ok([*STRICT, *options, SOURCES / "abi" / "old_host.c", "-o", program, *LINK])
    ended = run([program, model, state])
    assert ended.returncode == 0, ended.stderr

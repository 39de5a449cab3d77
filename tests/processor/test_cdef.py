# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from processor._cdef import cut_cdef


@pytest.fixture(scope="module")
def header(repository: Path) -> str:
    return (repository / "libprocessor/include/processor/processor.h").read_text(encoding="utf-8")


def test_cdef_contains_every_exported_function(header: str) -> None:
    cdef = cut_cdef(header)
    exported = set(re.findall(r"PROCESSOR_API\b[^;]*?\b(processor_\w+)\(", header))
    assert len(exported) > 20
    assert exported == {name for name in exported if f"{name}(" in cdef}
    assert "PROCESSOR_API" not in re.sub(r"/\*.*?\*/", "", cdef, flags=re.DOTALL).replace("PROCESSOR_ABI", "")
    assert "__cplusplus" not in cdef


@pytest.mark.parametrize(
    "text",
    [
        "no markers",
        "/* --8<-- cdef begin */ int x;",
        "/* --8<-- cdef end */ /* --8<-- cdef begin */",
        "/* --8<-- cdef begin */ /* --8<-- cdef begin */ /* --8<-- cdef end */",
    ],
)
def test_cdef_with_bad_markers_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="markers"):
        cut_cdef(text)


def test_generated_module_is_up_to_date(repository: Path, tmp_path: Path) -> None:
    subprocess.run(
        [
            sys.executable,
            repository / "processor/_build_ffi.py",
            repository / "libprocessor/include/processor/processor.h",
            tmp_path,
        ],
        check=True,
        capture_output=True,
    )
    for name in ("_abi.py", "_build.py"):
        made = (repository / "processor" / name).read_text(encoding="utf-8")
        assert made == (tmp_path / name).read_text(encoding="utf-8"), f"processor/{name} is old: run `make build`"


def test_build_script_prints_its_usage(repository: Path) -> None:
    run = subprocess.run([sys.executable, repository / "processor/_build_ffi.py"], capture_output=True, text=True)
    assert run.returncode == 1
    assert "HEADER FOLDER" in run.stderr

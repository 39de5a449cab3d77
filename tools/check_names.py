# SPDX-License-Identifier: Apache-2.0
"""Check that C++ sources that are compiled together share no names in anonymous namespaces.

    python tools/check_names.py

CMake compiles several sources of a target at a time (cmake/unity.cmake). Which ones changes when a source is added, so
no two sources of a target may define the same name for themselves: at best the compiler refuses it, at worst a call
takes the other file's overload.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Folders whose sources make one target.
TARGETS = (
    ("libprocessor/src/c_api", "libprocessor/src/codec", "libprocessor/src/host", "libprocessor/src/runtime"),
    ("libprocessor/src/kernels", "libprocessor/src/tables"),
    ("tests/libprocessor/codec", "tests/libprocessor/host", "tests/libprocessor/runtime"),
    ("tests/libprocessor/kernels", "tests/libprocessor/tables"),
)

_ALONE = re.compile(r"set_source_files_properties\(([^)]*)\bSKIP_UNITY_BUILD_INCLUSION ON")
_RAW = re.compile(r'R"(\w*)\(.*?\)\1"', re.DOTALL)
_TYPE = re.compile(r"(?:struct|class|union|enum(?: class)?) (\w+)")
# What stands before the first bracket, brace or sign of equality; clang-format has what is in a namespace at column 0.
_VALUE = re.compile(r"[A-Za-z_][\w:<>,*&\[\] .]*?[ *&](\w+)(?:\[\w*\])*(?:\(| = |\{|;)")


def sources_alone(cmake: str) -> set[str]:
    """Return the sources that are compiled by themselves, as CMakeLists.txt names them."""
    return {name for block in _ALONE.findall(cmake) for name in block.split() if name.endswith(".cc")}


def names_of(text: str) -> set[str]:
    """Return what a source defines in anonymous namespaces: types, functions and variables."""
    names = set()
    inside = False
    for line in _RAW.sub('""', text).splitlines():
        if line in ("namespace {", "}  // namespace"):
            inside = line == "namespace {"
        elif inside and not line.startswith(("using ", "namespace ", "#", "TEST", "REGISTER_")):
            declared = re.sub(r"^template <.*?> (?=\w)", "", line)
            found = _TYPE.match(declared) or _VALUE.match(declared)
            if found:
                names.add(found[1])
    return names


def shared_names(sources: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a sentence for each name that several sources, pairs of path and text, have for themselves."""
    files = defaultdict(list)
    for path, text in sources:
        for name in names_of(text):
            files[name].append(path)
    for name, paths in sorted(files.items()):
        if len(paths) > 1:
            yield f"{', '.join(sorted(paths))}: {name} in anonymous namespaces, expected a name for each"


def main() -> int:
    alone = sources_alone((ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))
    found: list[str] = []
    for folders in TARGETS:
        paths = [path for folder in folders for path in sorted((ROOT / folder).glob("*.cc"))]
        named = [(str(path.relative_to(ROOT)), path) for path in paths]
        found += shared_names((name, path.read_text(encoding="utf-8")) for name, path in named if name not in alone)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

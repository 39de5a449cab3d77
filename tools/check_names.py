# SPDX-License-Identifier: Apache-2.0
"""Check that C++ sources that are compiled together share no names in anonymous namespaces.

    python tools/check_names.py

CMake compiles several sources of a target together (cmake/unity.cmake), in groups that change when a source is added.
Therefore no two sources of a target may define the same name in an anonymous namespace: at best the compiler reports
it, at worst a call uses the overload of the other file.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_LIBRARY = tuple(f"libprocessor/src/{folder}/**/*.cc" for folder in ("base", "c_api", "codec", "host", "runtime"))
# Folders of which processor_thread_tests has sources.
_RUNTIME = ("batching", "executor", "requests", "session", "stats", "threads")
_THREADS = ("base", "host/control", "host/request_log", "live", "tables", *(f"runtime/{name}" for name in _RUNTIME))
# Targets that CMake compiles in batches, and the folders of their sources; some targets exist in several variants.
TARGETS = {
    "processor_objects": _LIBRARY,
    "processor_rules_objects": _LIBRARY,
    "processor_kernels": tuple(f"libprocessor/src/{folder}/*.cc" for folder in ("kernels", "live", "tables")),
    "processor_tests": tuple(
        f"tests/libprocessor/{folder}/**/*.cc" for folder in ("base", "c_api", "codec", "host", "runtime")
    ),
    "processor_kernel_tests": tuple(f"tests/libprocessor/{folder}/*.cc" for folder in ("kernels", "live", "tables")),
    "processor_thread_tests": tuple(
        f"{root}/{folder}/*.cc" for root in ("libprocessor/src", "tests/libprocessor") for folder in _THREADS
    ),
    "elastic_storage": ("elastic_training/src/[!o]*/*.cc", "elastic_training/src/optimizers/*.cc"),
    "elastic_training": ("elastic_training/src/ops/*.cc",),
    "elastic_training_tests": ("tests/elastic_training/src/*/test_*.cc",),
    "bench_serving": ("libprocessor/bench/bench_serving.cc", "libprocessor/bench/[!b]*.cc"),
    **{
        f"bench_{name}": (
            f"libprocessor/bench/bench_{name}.cc",
            "libprocessor/bench/main.cc",
            "libprocessor/bench/request_file.cc",
        )
        for name in ("lifecycle", "open_loop", "live")
    },
    "bench_codec_sources": ("libprocessor/bench/bench_codec.cc", "libprocessor/bench/codec_requests.cc"),
    "bench_kernels_sources": ("libprocessor/bench/bench_kernels.cc", "libprocessor/bench/kernels/*.cc"),
}

_ALONE = re.compile(r"set_source_files_properties\(([^)]*)\bSKIP_UNITY_BUILD_INCLUSION ON")
_RAW = re.compile(r'R"(\w*)\(.*?\)\1"', re.DOTALL)
_TYPE = re.compile(r"(?:struct|class|union|enum(?: class)?) (\w+)")
# `constexpr int kOne = 1, kOther = 2;`
_FURTHER = re.compile(r", (k[A-Z]\w*) = ")
_CONSTANT = re.compile(r"(?:inline )?(?:constexpr|const) [\w:<>,*& ]*?[ *&](k[A-Z]\w*)")
# The name before the first `(`, `{`, ` = ` or `;`. Definitions begin at column 0: clang-format indents nothing in
# namespaces.
_VALUE = re.compile(r"[A-Za-z_][\w:<>,*&\[\] .]*?[ *&](\w+)(?:\[\w*\])*(?:\(| = |\{|;)")


def sources_alone(cmake: str) -> set[str]:
    """Return the sources that CMakeLists.txt excludes from batches."""
    return {name for block in _ALONE.findall(cmake) for name in block.split() if name.endswith(".cc")}


def names_of(text: str) -> set[str]:
    """Return the names that a source defines in anonymous namespaces: types, functions and variables."""
    names: set[str] = set()
    inside = False
    for line in _RAW.sub('""', text).splitlines():
        if line in ("namespace {", "}  // namespace"):
            inside = line == "namespace {"
        elif inside and not line.startswith(("using ", "namespace ", "#", "TEST", "REGISTER_")):
            declared = re.sub(r"^template <.*?> (?=\w)", "", line)
            found = _TYPE.match(declared) or _VALUE.match(declared)
            if found:
                names.update((found[1], *_FURTHER.findall(line)))
    return names


def shared_names(sources: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a sentence for each name that several sources, pairs of path and text, define in anonymous namespaces."""
    files = defaultdict(list)
    for path, text in sources:
        for name in names_of(text):
            files[name].append(path)
    for name, paths in sorted(files.items()):
        if len(paths) > 1:
            yield f"{', '.join(sorted(paths))}: {name} in anonymous namespaces, expected a name for each"


def hidden_names(sources: Iterable[tuple[str, str]], headers: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a sentence for each type or constant that is in a header and in an anonymous namespace of a source.

    If a later source of the batch includes the header, the compiler finds both. Functions may be overloads.
    """
    declared = {}
    for path, text in headers:
        for line in _RAW.sub('""', text).splitlines():
            # A type that is only declared is defined elsewhere.
            found = _CONSTANT.match(line) or (None if line.endswith(";") else _TYPE.match(line))
            if found:
                declared.update(dict.fromkeys((found[1], *_FURTHER.findall(line)), path))
    for path, text in sources:
        for name in sorted(names_of(text) & declared.keys()):
            yield f"{path}: {name} in an anonymous namespace, expected another name than in {declared[name]}"


def _texts(paths: Iterable[Path]) -> list[tuple[str, str]]:
    return [(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in paths]


def main() -> int:
    alone = sources_alone((ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))
    found: list[str] = []
    for patterns in TARGETS.values():
        paths = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
        headers = [path for folder in {path.parent for path in paths} for path in sorted(folder.glob("*.h"))]
        texts = [(name, text) for name, text in _texts(paths) if name not in alone]
        found += [*shared_names(texts), *hidden_names(texts, _texts(headers))]
    print("\n".join(sorted(set(found))), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

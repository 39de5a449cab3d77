# SPDX-License-Identifier: Apache-2.0
"""Check the search for names that several sources of a target define."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from helpers.system.tool_modules import load_tool


@pytest.fixture(scope="module")
def check_names() -> ModuleType:
    return load_tool("check_names")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("struct Found {", "Found"),
        ("enum class Kind : uint8_t { kA };", "Kind"),
        ("constexpr int64_t kSecondNs = 1000;", "kSecondNs"),
        ("const Wrong kWrong[] = {", "kWrong"),
        ("std::atomic<int> count{0};", "count"),
        ("std::vector<std::string> Names(const std::string& text) {", "Names"),
        ("template <typename T> const T& At(const std::vector<T>& all) {", "At"),
        ("using Json = nlohmann::json;", None),
        ("namespace fs = std::filesystem;", None),
        ("TEST(Suite, Name) {", None),
        ("  int inner = 0;", None),
    ],
)
def test_anonymous_names_are_found(check_names: ModuleType, line: str, name: str | None) -> None:
    text = f"namespace processor {{\nnamespace {{\n\n{line}\n\n}}  // namespace\n\nvoid Shared() {{\n}}\n"
    assert check_names.names_of(text) == ({name} if name else set())


def test_shared_name_is_found(check_names: ModuleType) -> None:
    text = "namespace {\n\nvoid Read(int a) {\n}\n\n}  // namespace\n"
    (fault,) = check_names.shared_names([("a.cc", text), ("b.cc", text), ("c.cc", text.replace("Read", "Write"))])
    assert fault == "a.cc, b.cc: Read in anonymous namespaces, expected a name for each"


def test_sources_that_are_compiled_alone_are_known(check_names: ModuleType, repository: Path) -> None:
    alone = check_names.sources_alone((repository / "CMakeLists.txt").read_text(encoding="utf-8"))
    assert "libprocessor/src/kernels/row_math_avx2.cc" in alone
    assert all((repository / name).exists() for name in alone)


def test_every_target_folder_has_sources(check_names: ModuleType, repository: Path) -> None:
    patterns = {pattern for patterns in check_names.TARGETS.values() for pattern in patterns}
    assert all(list(repository.glob(pattern)) for pattern in patterns)


def test_every_unity_target_is_checked(check_names: ModuleType, repository: Path) -> None:
    files = [repository / "CMakeLists.txt", *(repository / "cmake").glob("*.cmake")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    targets = set(re.findall(r"^\s*compile_in_batches\((\S+)", text, re.MULTILINE))
    for loop in re.findall(
        r"^ *foreach\(program ([^)]+)\)\n(?:.*\n)*? *compile_in_batches\(\$\{program\}_sources", text, re.MULTILINE
    ):
        targets = targets - {"${program}_sources"} | {f"{program}_sources" for program in loop.split()}
    assert targets == set(check_names.TARGETS)


@pytest.mark.parametrize(
    ("header", "hidden"),
    [
        ("constexpr int64_t kRows = 64;", True),
        ("struct kRows {", True),
        ("struct kRows;", False),
        ("constexpr int64_t kColumns = 8, kRows = 64;", True),
        ("  constexpr int64_t kRows = 64;", False),
    ],
)
def test_a_name_of_a_header_is_found(check_names: ModuleType, header: str, hidden: bool) -> None:
    source = "namespace {\n\nconstexpr int64_t kRows = 16;\n\n}  // namespace\n"
    faults = list(check_names.hidden_names([("a.cc", source)], [("a.h", header + "\n")]))
    assert faults == (["a.cc: kRows in an anonymous namespace, expected another name than in a.h"] if hidden else [])

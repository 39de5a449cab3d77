# SPDX-License-Identifier: Apache-2.0
"""The documents agree with the code, and their snippets run."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from typer.testing import CliRunner

import processor
from demo.model import WideDeep, export
from demo.movielens import FEATURES
from helpers.system.programs import build_environment, require
from helpers.system.tool_modules import load_tool
from processor import errors

ROOT = Path(__file__).resolve().parent.parent
DOCS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
README = (ROOT / "README.md").read_text(encoding="utf-8")
VERBS = {
    "graph_tools": "inspect cut fuse optimize verify diff compress delta/inspect delta/compact delta/make delta/apply",
    "cost_model": "profile plan place simulate calibrate",
}
HEADER = (ROOT / "libprocessor" / "include" / "processor" / "processor.h").read_text(encoding="utf-8")


def _document(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def _snippet(language: str, text: str = README) -> str:
    """Return the first block of a language in a document: a whole program."""
    block: str = re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[0]
    return block


def _table_rows(text: str) -> dict[str, list[str]]:
    """Read the rows of all Markdown tables whose first cell is a name in backticks: name → other cells."""
    rows = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and re.fullmatch(r"`[\w.]+`", cells[0]):
            rows[cells[0].strip("`")] = cells[1:]
    return rows


@pytest.fixture(scope="module")
def model_parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the README's `model`: the click model of the demo, not trained."""
    folder = tmp_path_factory.mktemp("readme")
    values = {name: [b"196", b"242", b"M", b"writer", b"45-49", b"Comedy"] for name in FEATURES}
    (folder / "vocabularies").mkdir()
    export(WideDeep(values, folder / "vocabularies", prior=0.5, seed=1), folder / "model")
    return folder


# The reference of the ABI.


def test_abi_reference_is_current() -> None:
    assert _document("abi.md") == load_tool("make_abi_reference").current(), "run `make docs`"


def test_abi_reference_has_every_function() -> None:
    code = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.DOTALL)
    functions = re.findall(r"^PROCESSOR_API\s[^;{]*?(\w+)\(", code, re.MULTILINE)
    assert len(functions) > 20
    text = _document("abi.md")
    assert [name for name in functions if f"#### `{name}`\n" not in text] == []


def test_abi_reference_is_written_from_comments() -> None:
    header = """\
/**
 * \\file x.h
 * \\brief A header.
 *
 *     int main(void);
 */
/** \\defgroup thing Things
 * @{ */
/** How many | at most. */
#define PROCESSOR_MANY 7
/**
 * \\brief Count things,
 * one by one.
 *
 * \\param[out] count  how many
 *                    there are.
 * \\return OK.
 */
PROCESSOR_API int processor_count(int *count,
                                  int more);
"""
    text = load_tool("make_abi_reference").render({"x.h": header})
    for expected in (
        "## x.h\n\nA header.\n\n```c\nint main(void);\n```\n",
        "### Things\n",
        "| `PROCESSOR_MANY` | 7 | How many \\| at most. |\n",
        "#### `processor_count`\n\n```c\nint processor_count(int *count,\n                    int more);\n```\n",
        "Count things,\none by one.\n\n- `count` (out): how many there are.\n\n*Returns* OK.\n",
    ):
        assert expected in text


# The configuration.


TIMELINE = {
    "timeline_start_step": 0,
    "timeline_interval_step": 1,
    "timeline_trace_count": 1,
    "timeline_path": "/nowhere",
}


def _refusal(model: Path, key: str, value: object) -> str:
    """Return the error message of the library for a value that is invalid for a key."""
    others = TIMELINE if key in TIMELINE else {}
    outer, _, inner = key.partition(".")
    with pytest.raises(processor.ProcessorError) as refused:
        processor.Model(model, others | {outer: {inner: value} if inner else value})
    return str(refused.value)


def _keys_in_source() -> list[str]:
    """Return the string literals of the configuration's source that look like keys; some are values."""
    source = (ROOT / "libprocessor" / "src" / "runtime" / "config" / "model_config.cc").read_text(encoding="utf-8")
    return sorted(set(re.findall(r'"([a-z][a-z_]+)"', source)))


def test_every_key_is_documented(tiny_model: Path) -> None:
    known = {key for key in _keys_in_source() if f"'{key}': unknown" not in _refusal(tiny_model, key, {"?": 0})}
    assert len(known) > 40
    assert known == {key for key in _table_rows(_document("configuration.md")) if "." not in key}


@pytest.mark.parametrize("key", sorted(_table_rows(_document("configuration.md"))))
def test_documented_types_of_keys_match_the_library(key: str, tiny_model: Path) -> None:
    kind = _table_rows(_document("configuration.md"))[key][0]
    expected = _refusal(tiny_model, key, "?" if kind.startswith(('`"', "object")) else {}).partition("expected ")[2]
    if kind.startswith(("integer", "number")):
        low, high = re.fullmatch(r"an? \w+ from (\S+) to (\S+)", expected).groups()
        assert kind == f"{kind.partition(' ')[0]} {low} to {high}"
        assert expected.split()[1] == kind.partition(" ")[0]
    elif kind.startswith('`"'):
        assert set(re.findall(r'"(\w+)"', kind)) == set(re.findall(r'"(\w+)"', expected))
    else:
        word = {"boolean": "true or false", "list": "a list", "object": "an object"}.get(
            kind.partition(";")[0], "a string"
        )
        assert expected == word


def test_documented_defaults_match_the_library(tiny_model: Path) -> None:
    rows = _table_rows(_document("configuration.md"))
    with processor.Model(tiny_model) as model:
        info = model.info
    assert rows["session_num"][1] == f"`{info['sessions']}`"
    assert rows["select_session_policy"][1] == f'`"{info["select_session_policy"]}"`'
    assert rows["execution"][1].startswith(f'`"{info["execution"]}"` without')


@pytest.mark.parametrize(
    "message",
    re.findall(r"^config key .*$", _document("configuration.md"), re.MULTILINE),
    ids=lambda m: m.split("'")[1],
)
def test_documented_error_messages_match_the_library(message: str, tiny_model: Path) -> None:
    key = message.split("'")[1]
    value = {"session_num": 0, "sesion_num": 2, "feature_store_type": "redis"}[key]
    with pytest.raises(processor.InvalidArgumentError) as refused:
        processor.Model(tiny_model, {key: value})
    assert str(refused.value) == message


# Errors and statistics.


def test_every_status_is_documented() -> None:
    statuses = dict(
        re.findall(r"^#define (PROCESSOR_[A-Z_]+) (\d+)$", HEADER[: HEADER.index("processor_error {")], re.M)
    )
    del statuses["PROCESSOR_OK"]
    assert {name: cells[0] for name, cells in _table_rows(_document("errors.md")).items()} == statuses


@pytest.mark.parametrize(("name", "cells"), sorted(_table_rows(_document("errors.md")).items()))
def test_documented_parent_classes_match_the_exceptions(name: str, cells: list[str]) -> None:
    words = name.removeprefix("PROCESSOR_").title().replace("_", "")
    exception = getattr(errors, f"{words}Error")
    assert exception.code == int(cells[0])
    assert [parent.__name__ for parent in exception.__bases__] == ["ProcessorError", cells[-1].strip("`")]


def _section_keys(heading: str) -> set[str]:
    """Return the keys in the table below a heading of observability.md."""
    text = _document("observability.md").partition(f"`{heading}`\n")[2].partition("\n## ")[0]
    return set(_table_rows(text))


def test_every_key_of_info_and_statistics_is_documented(tiny_model: Path) -> None:
    with processor.Model(tiny_model) as model:
        model.run({"x": [[1.0, 2.0, 3.0]]})
        assert set(model.info) == _section_keys("processor_model_info")
        stats = model.stats()
    assert set(stats) == _section_keys("processor_model_stats")
    assert set(stats["latency_us"]) == {"count", "mean", "p50", "p95", "p99", "p99.9", "max"}


def test_every_key_of_the_build_info_is_documented() -> None:
    code = (
        "import json, processor._lib as lib; from processor._ffi import ffi;"
        "print(' '.join(json.loads(ffi.string(lib.get_lib().processor_build_info()))))"
    )
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(answer.stdout.split()) == _section_keys("processor_build_info")


# Markdown.


def _anchors(path: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub forms them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    found: list[str] = []
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "]", heading)).lower().strip().replace(" ", "-")
        found.append(f"{words}-{found.count(words)}" if words in found else words)
    return set(found)


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_targets_and_anchors_of_links_exist(path: Path) -> None:
    dead = []
    for link, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", path.read_text(encoding="utf-8")):
        target = path.parent / link if link else path
        if "://" not in link and (not target.exists() or (anchor and anchor not in _anchors(target))):
            dead.append(f"{link}#{anchor}")
    assert not dead


def test_make_targets_in_the_documents_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^## ([\w-]+):", makefile, re.MULTILINE))
    text = "\n".join(path.read_text(encoding="utf-8") for path in DOCS)
    named = set(re.findall(r"`(?:[A-Z]+=\S+ )?make ([a-z][a-z-]+)\b", text))
    named |= set(re.findall(r"^make ([a-z][a-z-]+)\b", README, re.MULTILINE))
    assert {"demo", "test"} <= named
    assert named <= targets


def test_readme_begins_with_what_the_project_is_and_two_commands() -> None:
    head, _, rest = README.partition("```sh\n")
    assert re.match(r"# recprocessor\n\nrecprocessor serves ", head)
    assert head.endswith(":\n\n")
    assert "`git clone`" in head.splitlines()[-2]
    assert [line.partition(" #")[0].strip() for line in rest.splitlines()[:2]] == ["make demo", "make test"]


def test_readme_is_short_and_its_picture_small() -> None:
    assert README.partition("\n## Documentation\n")[0].count("\n") <= 150
    (picture,) = re.findall(r"!\[[^\]]+\]\((docs/[^)]+\.png)\)", README)
    assert (ROOT / picture).stat().st_size < 200_000
    assert f"--picture {picture}`" in _document("demo.md")


def test_command_line_is_documented() -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "processor", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    options = set(re.findall(r"--[a-z-]+", answer.stdout)) - {"--help"}
    assert options == {"--library-path", "--include-path", "--version", "--info"}
    assert options <= set(re.findall(r"--[a-z-]+", _document("python.md")))


def test_decisions_are_numbered_and_complete() -> None:
    records = sorted((ROOT / "docs" / "adr").glob("*.md"))
    assert [int(path.name[:4]) for path in records] == list(range(1, len(records) + 1))
    for path in records:
        text = path.read_text(encoding="utf-8")
        assert text.startswith(f"# {int(path.name[:4])}. "), path.name
        assert re.search(r"^Date: \d{4}-\d{2}-\d{2}$", text, re.MULTILINE), path.name
        for heading in ("Status", "Context", "Decision", "Consequences"):
            assert f"## {heading}\n" in text, path.name


def test_overview_has_colors_for_light_and_dark_mode() -> None:
    picture = ROOT / "docs" / "overview.svg"
    assert "(overview.svg)" in _document("architecture.md")
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")
    light, _, dark = picture.read_text(encoding="utf-8").partition("@media (prefers-color-scheme: dark)")
    classes = set(re.findall(r'class="(\w+)', dark.partition("</style>")[2])) - {"head", "mono"}
    for name in classes:
        assert f".{name} {{" in light
        assert f".{name} {{" in dark


# The programs in the documents.


def test_git_ignores_files_that_snippets_write() -> None:
    ignored = set((ROOT / ".gitignore").read_text(encoding="utf-8").splitlines())
    text = README + "".join(map(_document, ("c.md", "graph_tools.md", "cost_model.md")))
    written = {"model", "host.c", *re.findall(r"`cc host\.c -o (\w+)", text)}
    written |= {two for _, two in re.findall(r"^graph-tools (cut|fuse|optimize) \w+ (\w+)", text, re.MULTILINE)}
    written |= set(re.findall(r"^(?:graph-tools|cost-model) .*--(?:report|out|plot) (\S+)", text, re.MULTILINE))
    assert {"cut", "fused", "optimized", "host", "cut.json", "profile.json"} <= written
    assert {f"/{name}" for name in written} <= ignored


def _score(text: str) -> float:
    score = float(text)
    assert 0.0 < score < 1.0
    return score


def test_python_snippet_runs(model_parent: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _snippet("python")]
    answer = subprocess.run(command, cwd=model_parent, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    scores = [_score(text) for text in answer.stdout.strip().strip("[]").split()]
    assert len(scores) == 2


def test_c_snippet_runs(model_parent: Path) -> None:
    (model_parent / "host.c").write_text(_snippet("c", _document("c.md")), encoding="utf-8")
    (command,) = re.findall(r"`(cc host\.c -o host [^`]+)`", _document("c.md"))
    # The documented command is for the checkout; the test runs it in another folder, with absolute paths.
    command = command.replace("-Ilibprocessor", f"-I{ROOT}/libprocessor").replace("-Lprocessor", f"-L{ROOT}/processor")
    command = command.replace("$PWD/processor", f"{ROOT}/processor")
    strict = ["-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command.split(), *strict], cwd=model_parent, check=True)
    answer = subprocess.run(["./host"], cwd=model_parent, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    _score(answer.stdout)


def test_go_snippet_runs(model_parent: Path) -> None:
    require("go", "cc")
    program = model_parent / "go"
    program.mkdir()
    (program / "main.go").write_text(_snippet("go", _document("go.md")), encoding="utf-8")
    module = ROOT / "libprocessor" / "go"
    wanted = re.search(r"^go (\S+)$", (module / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
    assert wanted is not None
    (program / "go.mod").write_text(
        f"module example\n\ngo {wanted[1]}\n\n"
        "require github.com/recprocessor/recprocessor/libprocessor/go v0.0.0\n"
        f"replace github.com/recprocessor/recprocessor/libprocessor/go => {module}\n",
        encoding="utf-8",
    )
    environment = build_environment()
    environment["GOFLAGS"] += " -mod=mod"
    built = subprocess.run(
        ["go", "build", "-o", "host", "."], cwd=program, env=environment, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    answer = subprocess.run(["go/host"], cwd=model_parent, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    _score(answer.stdout.strip().strip("[]"))


def test_every_pass_is_documented_in_order() -> None:
    from graph_tools.options import CutOptions
    from graph_tools.passes.cut import serving_passes
    from graph_tools.passes.fuse import fusing_pass_names

    names = [*dict.fromkeys(step.name for step in serving_passes(CutOptions())), *fusing_pass_names()]
    documented = list(_table_rows(_document("graph_passes.md")))
    assert documented == names


@pytest.mark.parametrize(("program", "verb"), [(program, verb) for program in VERBS for verb in VERBS[program].split()])
def test_every_option_is_documented(program: str, verb: str) -> None:
    cli = importlib.import_module(f"{program}.cli.app")
    cli.load_verbs()
    shown = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}).invoke(
        cli.app, [*verb.split("/"), "--help"]
    )
    assert shown.exit_code == 0, shown.output
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", shown.output)) - {"--help"}
    assert options
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob(f"{program}*.md"))
    assert {option for option in options if f"`{option}" not in text and f"{option}`" not in text} == set()


def test_every_system_that_graph_tools_reads_is_documented() -> None:
    from graph_tools.readers.families import FAMILIES

    document = _document("formats.md")
    assert FAMILIES
    for family in FAMILIES:
        assert f"| {family.name} |" in document, family.name

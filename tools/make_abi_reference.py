# SPDX-License-Identifier: Apache-2.0
"""Write docs/abi.md, the reference of the C ABI, from the comments in the public headers.

    python tools/make_abi_reference.py            writes the file
    python tools/make_abi_reference.py --check    fails if the file is out of date

The headers are the only source: the comment before a declaration becomes its description.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADERS = ("processor.h", "deeprec.h")
OUTPUT = ROOT / "docs" / "abi.md"

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_DEFINE = re.compile(r"#define\s+(PROCESSOR_\w+)\s+(\S+)")
_COMMAND = re.compile(r"\\(file|brief|param(?:\[[a-z,]+\])?|return|defgroup)(?=\s)")


@dataclass
class Entry:
    """Contain a declaration and its comment."""

    name: str
    code: str
    comment: str
    value: str = ""


@dataclass
class Group:
    """Contain the entries between two `defgroup` commands."""

    title: str
    text: str = ""
    entries: list[Entry] = field(default_factory=list)


def _comment_text(comment: str) -> str:
    """Strip the stars of a block comment."""
    body = comment.removeprefix("/*").removesuffix("*/").lstrip("*")
    lines = [re.sub(r"^\s*\* ?", "", line, count=1) for line in body.splitlines()]
    lines[0] = lines[0].strip() if lines else ""
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def _declarations(source: str) -> list[tuple[str, str]]:
    """Split a header into (comment, code) pairs, in order; the comment may be empty."""
    pairs: list[tuple[str, str]] = []
    position, pending = 0, ""
    while position < len(source):
        rest = source[position:]
        blank = re.match(r"\s+", rest)
        if blank:
            position += blank.end()
            continue
        comment = _COMMENT.match(rest)
        if comment:
            text = comment.group()
            if "\\defgroup" in text or "@}" in text or "\\file" in text:
                pairs.append((text, ""))
                pending = ""
            else:
                pending = text if text.startswith("/**") else ""
            position += comment.end()
            continue
        length = _declaration_length(rest)
        pairs.append((pending, rest[:length].strip()))
        pending = ""
        position += length
    return pairs


def _declaration_length(text: str) -> int:
    """Return the length of the first preprocessor line or declaration, including struct bodies."""
    if text.startswith("#"):
        return text.find("\n") + 1 or len(text)
    opened, position = 0, 0
    while position < len(text):
        comment = _COMMENT.match(text, position)
        if comment:
            position = comment.end()
            continue
        char = text[position]
        opened += (char == "{") - (char == "}")
        position += 1
        if (char == ";" and opened == 0) or text.startswith('extern "C" {', position - 1):
            return position if char == ";" else position + len('extern "C" {')
        if char == "}" and opened < 0:
            return position
    return len(text)


def _name(code: str) -> str:
    """Return the name that a declaration declares."""
    flat = _COMMENT.sub("", code)
    pointer = re.search(r"\(\*(\w+)\)", flat)
    if flat.startswith("typedef") and pointer:
        return pointer.group(1)
    function = re.search(r"(\w+)\s*\(", flat)
    if function and not flat.startswith("typedef"):
        return function.group(1)
    return flat.rstrip("; \n").split()[-1].lstrip("*")


def parse(source: str) -> list[Group]:
    """Parse a header into groups; the first group has no title and contains the comment of the file."""
    groups = [Group("")]
    for comment, code in _declarations(source):
        text = _comment_text(comment) if comment else ""
        if not code:
            if "\\file" in text:
                groups[0].text = re.sub(r"\\file.*\n", "", text)
            elif "\\defgroup" in text:
                head, _, body = text.partition("\n")
                groups.append(Group(head.split(maxsplit=2)[2], body.replace("@{", "").strip()))
            continue
        define = _DEFINE.match(code)
        if define:
            if define.group(1) not in ("PROCESSOR_API", "PROCESSOR_DEEPREC_API"):
                groups[-1].entries.append(Entry(define.group(1), code, text, define.group(2)))
        elif code.startswith(("typedef", "PROCESSOR_")):
            groups[-1].entries.append(Entry(_name(code), code, text))
    return groups


def _paragraphs(text: str) -> list[str]:
    """Convert the text of a comment to Markdown and its commands to lists."""
    parts: list[tuple[str, str]] = [("", "")]
    for line in text.splitlines():
        command = _COMMAND.match(line)
        if command:
            parts.append((command.group(1), line[command.end() :].strip()))
        elif parts[-1][0] and not line.strip():
            parts.append(("", ""))
        else:
            kind, body = parts[-1]
            parts[-1] = (kind, body + "\n" + (line.strip() if kind else line))
    result: list[str] = []
    for kind, body in parts:
        body = body.strip("\n")
        if not body:
            continue
        if kind.startswith("param"):
            name, _, rest = body.partition(" ")
            direction = f" ({kind[6:-1]})" if "[" in kind else ""
            item = f"- `{name}`{direction}: {_one_line(rest)}"
            if result and result[-1].startswith("- `"):
                result[-1] += "\n" + item
            else:
                result.append(item)
        elif kind == "return":
            result.append(f"*Returns* {_one_line(body)}")
        else:
            result.append(body)
    return result


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _strip_macros(code: str) -> str:
    """Remove the export macro, and the indentation that it caused in the following lines."""
    macro = re.match(r"PROCESSOR_(?:DEEPREC_)?API\s+", code)
    if not macro:
        return code
    return code[macro.end() :].replace("\n" + " " * macro.end(), "\n")


def _render_group(group: Group) -> list[str]:
    lines = [f"### {group.title}", ""] if group.title else []
    for paragraph in _paragraphs(group.text):
        lines += [_escape_indented(paragraph), ""]
    table: list[Entry] = []
    for entry in group.entries:
        if entry.value:
            table.append(entry)
            continue
        lines += _render_table(table)
        table = []
        lines += [f"#### `{entry.name}`", "", "```c", _strip_macros(entry.code), "```", ""]
        for paragraph in _paragraphs(entry.comment):
            lines += [paragraph, ""]
    return lines + _render_table(table)


def _render_table(entries: list[Entry]) -> list[str]:
    if not entries:
        return []
    rows = [f"| `{e.name}` | {e.value} | {_one_line(e.comment).replace('|', chr(92) + '|')} |" for e in entries]
    return ["| constant | value | meaning |", "| --- | --- | --- |", *rows, ""]


def _escape_indented(text: str) -> str:
    """Fence the indented example of a comment, so that every Markdown reader shows it as C."""
    lines: list[str] = []
    code: list[str] = []
    for line in [*text.splitlines(), "."]:
        if line.startswith("    ") and (code or not line.strip()[:1].isdigit()) and not _continues_list(lines):
            code.append(line[4:])
            continue
        if code and not line.strip():
            code.append("")
            continue
        if code:
            lines += ["```c", *"\n".join(code).strip("\n").split("\n"), "```", ""]
            code = []
        lines.append(line)
    return "\n".join(lines[:-1]).strip("\n")


def _continues_list(lines: list[str]) -> bool:
    """Return whether an indented line belongs to a numbered item above it."""
    for line in reversed(lines):
        if not line.strip():
            return False
        if re.match(r"\s*\d+\. ", line):
            return True
    return False


def render(sources: dict[str, str]) -> str:
    """Return the reference for headers given as name → text."""
    lines = [
        "# ABI reference",
        "",
        "<!-- Written by tools/make_abi_reference.py from the headers; change those, then run `make docs`. -->",
        "",
        "Every function, struct and constant that `libprocessor.so` offers, as its headers describe them.",
        "Include `processor/processor.h` for new programs, `processor/deeprec.h` for hosts of the drop-in contract.",
        "",
    ]
    for name, source in sources.items():
        lines += [f"## {name}", ""]
        for group in parse(source):
            lines += _render_group(group)
    return "\n".join(lines).rstrip("\n") + "\n"


def current() -> str:
    """Return the reference for the headers of this checkout."""
    folder = ROOT / "libprocessor" / "include" / "processor"
    return render({name: (folder / name).read_text(encoding="utf-8") for name in HEADERS})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="do not write; fail if docs/abi.md is out of date")
    arguments = parser.parse_args()
    text = current()
    if arguments.check:
        if not OUTPUT.exists() or OUTPUT.read_text(encoding="utf-8") != text:
            print("docs/abi.md is out of date: run `make docs`", file=sys.stderr)
            return 1
        return 0
    OUTPUT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

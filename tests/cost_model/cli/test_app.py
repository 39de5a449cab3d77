# SPDX-License-Identifier: Apache-2.0
"""The help of every verb: its examples are commands that work."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from cost_model.cli.app import app, load_verbs

ROOT = Path(__file__).resolve().parents[3]
load_verbs()
COMMANDS = get_command(app).commands  # type: ignore[attr-defined]
HELP = {"cost-model": get_command(app).epilog or ""} | {name: command.help or "" for name, command in COMMANDS.items()}
DOCS = "\n".join(
    (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("cost_model.md", "cost_model_simulation.md")
)
EXAMPLES = sorted(
    {line for text in HELP.values() for line in re.findall(r"`cost-model (\w+ [^`\n]+)`", text)}
    | {line.split("#")[0].strip() for line in re.findall(r"^cost-model (.+)$", DOCS, re.MULTILINE)}
)


def test_every_verb_has_an_example() -> None:
    assert {one.split()[0] for one in EXAMPLES} == set(COMMANDS)


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_is_parsed(example: str) -> None:
    verb, *arguments = shlex.split(example)
    COMMANDS[verb].make_context(verb, arguments)


@pytest.mark.parametrize("example", [one for one in EXAMPLES if one.startswith("plan") and "calibration" not in one])
def test_example_of_plan_runs(example: str, tmp_path: Path) -> None:
    box = str(ROOT / "cost_model" / "scenarios" / "box128.yaml")
    arguments = [box if one.endswith(".yaml") else one for one in shlex.split(example)]
    arguments = [str(tmp_path / one) if one.endswith(".png") else one for one in arguments]
    answer = CliRunner().invoke(app, arguments)
    # 1: this workload has models that miss their objectives alone.
    assert answer.exit_code in (0, 1), answer.output


def test_modules_that_the_help_names_are_there() -> None:
    named = re.findall(r"python -m ([\w.]+)", "\n".join([*HELP.values(), DOCS]))
    assert named
    for name in named:
        assert importlib.util.find_spec(name), name

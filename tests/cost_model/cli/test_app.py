# SPDX-License-Identifier: Apache-2.0
"""Check the help texts of cost-model: the examples must be commands that work."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from cost_model.cli.app import app, load_verbs
from cost_model.profiling.profile import Profile, cpu_model

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
    assert {example.split()[0] for example in EXAMPLES} == set(COMMANDS)


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_is_parsed(example: str) -> None:
    verb, *arguments = shlex.split(example)
    COMMANDS[verb].make_context(verb, arguments)


@pytest.mark.parametrize(
    "example", [example for example in EXAMPLES if example.startswith("plan box128") and "cal" not in example]
)
def test_example_of_plan_runs_as_it_stands_in_an_empty_folder(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = CliRunner().invoke(app, shlex.split(example))
    # This workload has models that miss their SLOs alone, whatever their threads; one more fits.
    assert answer.exit_code == (0 if "--add" in example else 1), answer.output


def test_workload_in_the_documentation_can_be_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = re.findall(r"cat > click.yaml <<'EOF'\n(.+?)EOF\n", DOCS, re.DOTALL)
    (tmp_path / "click.yaml").write_text(text)
    made = Profile("f", cpu_model())
    for rows in (1, 16, 128, 512):
        made.add(1, rows, np.array([100.0 + rows, 150.0 + rows]))
    made.save(tmp_path / "profile.json")
    monkeypatch.chdir(tmp_path)
    examples = [
        example for example in EXAMPLES if example.startswith("plan click.yaml") and "calibration" not in example
    ]
    assert examples
    for example in examples:
        answer = CliRunner().invoke(app, shlex.split(example))
        assert answer.exit_code == 0, answer.output


def test_modules_named_in_the_help_exist() -> None:
    named = re.findall(r"python -m ([\w.]+)", "\n".join([*HELP.values(), DOCS]))
    assert named
    for name in named:
        assert importlib.util.find_spec(name), name

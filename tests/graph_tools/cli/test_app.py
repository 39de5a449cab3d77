# SPDX-License-Identifier: Apache-2.0
"""Test the help, the version, and what all verbs share."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.text import Text

from graph_tools.cli import main
from graph_tools.errors import UnreadableError, UsageError
from graph_tools.report.version import version
from helpers.graph_tools.cut_models import run

VERBS = ("inspect", "cut", "verify", "diff", "convert")


def _plain(text: str) -> str:
    return Text.from_ansi(text).plain


def test_version() -> None:
    found = run("--version")
    assert (found.code, found.out) == (0, f"graph-tools {version()}\n")


def test_no_arguments_show_the_verbs() -> None:
    found = run()
    assert found.code == 2
    text = _plain(found.out + found.err)
    places = [text.index(f" {verb} ") for verb in VERBS]
    assert places == sorted(places)
    assert "Exit codes" in text


def test_unknown_verb() -> None:
    found = run("shrink")
    assert (found.code, found.out) == (2, "")
    assert "shrink" in found.err


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("verb", VERBS)
def test_help_has_examples_whose_options_exist(verb: str, flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERMINAL_WIDTH", "200")
    found = run(verb, flag)
    assert (found.code, found.err) == (0, "")
    text = _plain(found.out)
    examples = [line for line in text.splitlines() if "•" in line]
    assert len(examples) >= 2
    assert all(f"graph-tools {verb} " in line for line in examples)
    described = set(re.findall(r"--[a-z-]+", text.partition("Options")[2]))
    assert set(re.findall(r"--[a-z-]+", "\n".join(examples))) <= described


def test_help_of_cut_names_every_option_of_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERMINAL_WIDTH", "200")
    text = _plain(run("cut", "--help").out)
    for option in (
        "--signature", "--outputs", "--checkpoint", "--dry-run", "--absent-key", "--embedding-dtype", "--tensor-type",
        "--min-norm", "--min-frequency", "--keep-graph-names", "--report", "--memory-limit", "--no-verify", "--json",
    ):  # fmt: skip
        assert option in text


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("a [b]: found,\n  expected\tmore"), 2, "error: a [b]: found, expected more\n"),
        (UnreadableError("x" * 300), 2, f"error: {'x' * 300}\n"),
        (FileNotFoundError(2, "No such file", "/a/b"), 2, "error: /a/b: No such file, expected to read or write it\n"),
        (KeyboardInterrupt(), 130, "error: interrupted; nothing was written\n"),
    ],
)
def test_errors_are_one_line(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    import typer

    from graph_tools.cli.app import guarded

    @guarded
    def command() -> int:
        raise error

    with pytest.raises(typer.Exit) as caught:
        command()
    assert caught.value.exit_code == code
    assert capsys.readouterr().err == said


def test_programming_errors_are_not_hidden() -> None:
    from graph_tools.cli.app import guarded

    @guarded
    def command() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        command()


def test_python_m_runs_the_same_main() -> None:
    from graph_tools import __main__

    assert __main__.main is main

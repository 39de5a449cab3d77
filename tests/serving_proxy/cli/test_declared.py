# SPDX-License-Identifier: Apache-2.0
"""Options of a verb that come from a declaration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from serving_proxy.cli.app import app, load_commands
from serving_proxy.cli.declared import with_options
from serving_proxy.deploy.options import DeployOptions
from serving_proxy.errors import InvalidError
from serving_proxy.records.guard_settings import GuardSettings


def typed(model: type, *words: str, defaults: bool = True) -> dict[str, Any]:
    """Return what a verb is given for the words of its command line."""
    app, seen = typer.Typer(), {}

    @app.command()
    @with_options(model, defaults)
    def verb(*, name: str, given: dict[str, Any]) -> None:
        assert name == "ranking"
        seen.update(given)

    found = CliRunner().invoke(app, ["ranking", *words], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return seen


def test_zero_is_given_and_what_was_not_typed_is_not() -> None:
    assert typed(DeployOptions, "--traffic", "0", "--priority", "0") == {
        "precision": "auto",
        "traffic": 0.0,
        "priority": 0,
    }


def test_options_of_one_record_make_up_one_field() -> None:
    found = typed(DeployOptions, "--batching", "timed", "--max-rows", "64", "--max-queue", "5")
    assert found["batching"] == {"mode": "timed", "max_rows": 64}
    assert found["limits"] == {"max_queue": 5}


def test_a_word_stays_a_word_and_a_file_becomes_absolute() -> None:
    assert typed(DeployOptions, "--warmup", "last", "--profile", "p.json") == {
        "precision": "auto",
        "warmup": "last",
        "profile": str(Path("p.json").absolute()),
    }


def test_a_url_stays_a_url() -> None:
    assert typed(DeployOptions, "--follow", "s3://models/deltas", "--profile", "file:///profiles/p.json") == {
        "precision": "auto",
        "follow": "s3://models/deltas",
        "profile": "file:///profiles/p.json",
    }


def test_flags_lists_and_json_are_read() -> None:
    found = typed(DeployOptions, "--optimize", "--label", "a", "--label", "b", "--config", '{"session_num": 2}')
    assert found == {"precision": "auto", "optimize": True, "labels": ["a", "b"], "config": {"session_num": 2}}


def test_durations_and_none_are_read_where_they_may_be_given() -> None:
    found = typed(GuardSettings, "--window", "5m", "--promote-after", "none", "--error-percent", "2%", defaults=False)
    assert found == {"window_s": 300.0, "promote_after_s": None, "error_percent": 2.0}
    with pytest.raises(InvalidError, match="--error-percent: 'x', expected a number, or none"):
        typed(GuardSettings, "--error-percent", "x", defaults=False)


def help_of(command: str) -> str:
    load_commands()
    found = CliRunner(env={"COLUMNS": "200"}).invoke(app, [command, "--help"])
    # Without the colors that typer uses on CI machines.
    return re.sub(r"\x1b\[[0-9;]*m", "", found.output)


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("serve", ["[default: 8500]", "[default: 127.0.0.1]", "[default: 30]"]),
        ("deploy", ["[default: auto]", "[default: http://127.0.0.1:8502]"]),
        ("guard", ["[initially: rollback]", "[initially: 0.1]", "[initially: none]", "[initially: 1h]"]),
    ],
)
def test_help_shows_defaults_in_one_form(command: str, shown: list[str]) -> None:
    text = help_of(command)
    assert [default for default in shown if default not in text] == []
    assert "(default" not in text


def test_help_of_guard_shows_no_default_of_a_limit() -> None:
    assert re.findall(r"\[default: ([^]]*)]", help_of("guard")) == ["http://127.0.0.1:8502"]

# SPDX-License-Identifier: Apache-2.0
"""Test that fields of dataclasses become options of a command."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from graph_tools.cli.groups import given, with_groups


@dataclass
class Named:
    first: Annotated[str, typer.Argument()]
    last: Annotated[str | None, typer.Option("--surname")] = None


@dataclass
class Aged(Named):
    age: Annotated[int, typer.Option(min=0)] = 1


def test_a_command_has_the_fields_of_its_groups() -> None:
    @with_groups
    def command(*, person: Aged, loud: bool = False) -> int:
        print(person, loud)
        return 0

    app = typer.Typer()
    app.command()(command)
    assert list(inspect.signature(command).parameters) == ["first", "last", "age", "loud"]
    found = CliRunner().invoke(app, ["Ada", "--surname", "Lovelace", "--loud"])
    assert found.stdout.strip() == "Aged(first='Ada', last='Lovelace', age=1) True"
    assert CliRunner().invoke(app, ["Ada", "--age", "-1"]).exit_code == 2
    assert CliRunner().invoke(app, []).exit_code == 2


def test_options_that_were_not_given_are_no_arguments() -> None:
    assert given(Aged("Ada", age=0)) == {"first": "Ada", "age": 0}

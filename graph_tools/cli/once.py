# SPDX-License-Identifier: Apache-2.0
"""Define a group of commands that refuses options with one value if they are given more than once.

Otherwise the last value would count, and a user who wants to compare two policies would see the result of one.
"""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup


class OnceGroup(TyperGroup):
    """Applies this rule to its own options and to those of all its commands."""

    def make_parser(self, ctx: Any) -> Any:
        """Make the parser of the group's own options."""
        return _refuse_repeats(super().make_parser(ctx), ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command with the same rule."""
        command = super().get_command(ctx, cmd_name)
        if command is not None and not isinstance(command, OnceGroup):
            make = type(command).make_parser
            command.make_parser = lambda ctx: _refuse_repeats(make(command, ctx), ctx)  # type: ignore[method-assign]
        return command


def _refuse_repeats(parser: Any, ctx: Any) -> Any:
    """Make a parser refuse repeated options; flags and options that collect values may be repeated."""
    options = {id(option): option for option in (*parser._long_opt.values(), *parser._short_opt.values())}
    for option in options.values():
        if option.action == "store":
            option.process = _store_once(option, ctx)
    return parser


def _store_once(option: Any, ctx: Any) -> Any:
    take = type(option).process

    def process(value: Any, state: Any) -> None:
        if option.dest in state.opts:
            names = " / ".join(option.obj.opts)
            found = f"{names}: '{state.opts[option.dest]}' and '{value}', expected it once"
            raise typer.BadParameter(found, ctx=ctx)
        take(option, value, state)

    return process

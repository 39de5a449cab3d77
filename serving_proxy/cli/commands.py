# SPDX-License-Identifier: Apache-2.0
"""Commands that send requests to a proxy: the options that all of them have, and the output of the responses."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from serving_proxy.cli.app import app, guarded
from serving_proxy.cli.options import CaFile, Server, TokenFile, connect, print_json
from serving_proxy.cli.rendering import console
from serving_proxy.client import DEFAULT_SERVER

Command = Callable[..., Any]
# The empty metavar: newer versions of typer show a flag's type, as if it took a value.
AsJson = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON instead of tables.")]


def option(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    """Return a parameter of a command in typer's form."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


_ASKED = (
    option("server", Server, DEFAULT_SERVER),
    option("token_file", TokenFile),
    option("ca_file", CaFile),
    option("as_json", AsJson, False),
)


def proxy_command(
    name: str, about: str, render: Callable[[Any], RenderableType] | None = None, soft_wrap: bool = False
) -> Callable[[Command], Command]:
    """Register a command whose function gets a `client`, and whose result is printed as JSON or as a table.

    Parameters
    ----------
    name : str
    about : str
        The help text.
    render : callable, optional
        Converts the function's result into a table. Without it, the function gets `as_json`, and prints its result
        itself.
    soft_wrap : bool
    """

    def wrap(command: Command) -> Command:
        @functools.wraps(command)
        def run(*, server: str, token_file: Any, ca_file: Any, as_json: bool, **values: Any) -> None:
            with connect(server, token_file, ca_file) as client:
                if render is None:
                    command(client=client, as_json=as_json, **values)
                else:
                    show(command(client=client, **values), as_json, render, soft_wrap)

        set_parameters(run, command, without={"client", "as_json"}, added=_ASKED)
        return app.command(name=name, help=about)(guarded(run))

    return wrap


def show(data: Any, as_json: bool, render: Callable[[Any], RenderableType], soft_wrap: bool = False) -> None:
    """Print a result as JSON or as a table."""
    if as_json:
        print_json(data)
    else:
        console().print(render(data), soft_wrap=soft_wrap, crop=False)


def set_parameters(
    run: Command, command: Command, without: set[str], added: Sequence[inspect.Parameter], first: bool = False
) -> None:
    """Set the parameters of a command for typer: its own, without some and with others, which may come before its
    options.
    """
    signature = inspect.signature(command, eval_str=True)
    own = [
        parameter.replace(kind=parameter.KEYWORD_ONLY)
        for parameter in signature.parameters.values()
        if parameter.name not in without
    ]
    arguments = [parameter for parameter in own if parameter.default is parameter.empty]
    options = [parameter for parameter in own if parameter.default is not parameter.empty]
    parameters = [*arguments, *((*added, *options) if first else (*options, *added))]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}

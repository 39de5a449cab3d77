# SPDX-License-Identifier: Apache-2.0
"""Define the `graph-tools` command: its verbs, its exit codes, and the behavior that all verbs share.

Exit codes: 0 success, 1 failed verification or conversion, 2 wrong use or unreadable input; 128 plus the number of the
signal that ended it, as in shells.
"""

from __future__ import annotations

import functools
import importlib
import os
import signal
from collections.abc import Callable
from typing import Annotated, ParamSpec

import typer
from rich.console import Console
from rich.markup import escape

from graph_tools.cli.groups import with_groups
from graph_tools.cli.once import OnceGroup
from graph_tools.cli.signals import end_on_signals, received
from graph_tools.errors import GraphToolsError
from graph_tools.lean_start import leave_out_keras

app = typer.Typer(
    name="graph-tools",
    cls=OnceGroup,
    help="Cut exported TensorFlow models down to what serving needs, fuse the rest, and prove that scores stay equal.",
    epilog="Start with `graph-tools inspect MODEL`, then `graph-tools cut MODEL --dry-run` or "
    "`graph-tools optimize MODEL OUT`. Exit codes: 0 success, 1 verification or conversion failed, 2 wrong use "
    "or unreadable input.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
errors = Console(stderr=True)
P = ParamSpec("P")


def _version(wanted: bool) -> None:
    if wanted:
        from graph_tools.report.version import version

        typer.echo(f"graph-tools {version()}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", metavar="", callback=_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None: ...


def main() -> None:
    """Run the command line."""
    # TensorFlow reads this once, when it is loaded; the suppressed messages are not about the user's model. Nothing
    # else is set, since models are compared as they are served.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    leave_out_keras()
    end_on_signals()
    load_verbs()
    app(prog_name="graph-tools")


def load_verbs() -> None:
    """Import the modules of the verbs, which register them with `app`, in the order of the help text."""
    for verb in ("inspect", "cut", "fuse", "optimize", "verify", "diff", "convert", "compress", "delta"):
        importlib.import_module(f"graph_tools.cli.{verb}")


def guarded(command: Callable[P, int | None]) -> Callable[P, None]:
    """Wrap a verb: turn its errors into one message and an exit code, and exit with the code that it returns."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            code = command(*args, **kwargs)
        except (Exception, KeyboardInterrupt) as error:
            number = received()
            if number is None and not isinstance(error, KeyboardInterrupt):
                code = _code_of(error)
            else:
                # If the interrupt was raised in code from a string (named tuples, data classes), it leaves a mark that
                # makes `python -m` die of the signal although it was caught. Running other code from a string removes
                # the mark.
                exec("")
                if number != signal.SIGTERM:
                    _print_error("interrupted; nothing was written")
                code = 128 + (number or signal.SIGINT)
        raise typer.Exit(code or 0)

    return run


def _code_of(error: Exception) -> int:
    """Print an error that the user can mend, and return its exit code; raise any other."""
    if isinstance(error, GraphToolsError):
        _print_error(str(error))
        return error.exit_code
    # If the reader of our output has closed the pipe, typer exits quietly.
    if not isinstance(error, OSError) or isinstance(error, BrokenPipeError):
        raise error
    place = f"{error.filename}: " if error.filename else ""
    _print_error(f"{place}{error.strerror or error}, expected to read or write it")
    return 2


def verb(name: str, text: str, group: typer.Typer = app) -> Callable[[Callable[..., int]], Callable[..., None]]:
    """Register a function as a verb with its help text; `guarded` and `with_groups` describe what it may do."""
    return lambda command: group.command(name=name, help=text)(guarded(with_groups(command)))


def _print_error(message: str) -> None:
    """Print the message in one line, even if TensorFlow's text in it has several."""
    errors.print(f"[bold red]error:[/] {escape(' '.join(message.split()))}", soft_wrap=True, highlight=False)

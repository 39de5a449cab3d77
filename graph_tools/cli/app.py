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
from graph_tools.errors import GraphToolsError

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
    signal.signal(signal.SIGTERM, _exit_on_signal)
    load_verbs()
    app(prog_name="graph-tools")


def load_verbs() -> None:
    """Import the modules of the verbs, which register them with `app`, in the order of the help text."""
    for verb in ("inspect", "cut", "fuse", "optimize", "verify", "diff", "convert", "compress", "delta"):
        importlib.import_module(f"graph_tools.cli.{verb}")


def _exit_on_signal(number: int, _: object) -> None:
    """Exit as Ctrl-C does, so that no incomplete files stay behind."""
    raise SystemExit(128 + number)


def guarded(command: Callable[P, int | None]) -> Callable[P, None]:
    """Wrap a verb: turn its errors into one message and an exit code, and exit with the code that it returns."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            code = command(*args, **kwargs)
        except GraphToolsError as error:
            _print_error(str(error))
            raise typer.Exit(error.exit_code) from error
        except BrokenPipeError:
            # The reader of our output has closed the pipe; typer exits quietly.
            raise
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            _print_error(f"{place}{error.strerror or error}, expected to read or write it")
            raise typer.Exit(2) from error
        except KeyboardInterrupt:
            # If the interrupt was raised in code from a string (named tuples, data classes), it leaves a mark that
            # makes `python -m` die of the signal although it was caught. Running other code from a string removes the
            # mark.
            exec("")
            _print_error("interrupted; nothing was written")
            raise typer.Exit(128 + signal.SIGINT) from None
        raise typer.Exit(code or 0)

    return run


def verb(name: str, text: str, group: typer.Typer = app) -> Callable[[Callable[..., int]], Callable[..., None]]:
    """Register a function as a verb with its help text; `guarded` and `with_groups` describe what it may do."""
    return lambda command: group.command(name=name, help=text)(guarded(with_groups(command)))


def _print_error(message: str) -> None:
    """Print the message in one line, even if TensorFlow's text in it has several."""
    errors.print(f"[bold red]error:[/] {escape(' '.join(message.split()))}", soft_wrap=True, highlight=False)

# SPDX-License-Identifier: Apache-2.0
"""The `serving-proxy` command: its verbs, its exit codes, and what all verbs have in common.

Exit codes: 0 success; 1 the proxy refused or the operation failed; 2 wrong usage, or no proxy responds; 128 plus the
number of the signal that ended it, as in shells.
"""

from __future__ import annotations

import functools
import importlib
import signal
from collections.abc import Callable
from typing import Annotated, ParamSpec

import typer
from rich.console import Console
from rich.markup import escape

from cost_model.once import OnceGroup
from serving_proxy.errors import InvalidError, ProxyError, UnauthenticatedError, UnavailableError

app = typer.Typer(
    name="serving-proxy",
    cls=OnceGroup,
    help="Deploy recommendation models, split traffic between their versions, promote them and roll back.",
    epilog="Start with `serving-proxy serve --state-dir DIR`, then run `serving-proxy deploy NAME PATH --wait`. Exit "
    "codes: 0 success, 1 refused or failed, 2 wrong usage or no proxy.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
errors = Console(stderr=True)
P = ParamSpec("P")

COMMANDS = (
    "serve", "agent", "deploy", "traffic", "baselines", "guard", "request_log", "show", "drain", "upload_deltas",
    "placement", "clean_store",
)  # fmt: skip
_WRONG_USE = (InvalidError, UnauthenticatedError, UnavailableError)


def _version(wanted: bool) -> None:
    if wanted:
        from serving_proxy.version import version

        typer.echo(f"serving-proxy {version()}")
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
    load_commands()
    app(prog_name="serving-proxy")


def load_commands() -> None:
    """Import the modules of the verbs, which register them in `app`, in the order of the help text."""
    for verb in COMMANDS:
        importlib.import_module(f"serving_proxy.cli.{verb}")


def guarded(command: Callable[P, int | None]) -> Callable[P, None]:
    """Wrap a verb: an error becomes one message and the exit code, and an exit code that the verb returns is used."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            code = command(*args, **kwargs)
        except ProxyError as error:
            complain(str(error))
            raise typer.Exit(2 if isinstance(error, _WRONG_USE) else 1) from error
        except OSError as error:
            # Errors of the machine: a file of another kind, a disk that fails, no more descriptors.
            named = f"{error.filename}: " if error.filename else ""
            complain(f"{named}{error.strerror or error}; the command cannot continue")
            raise typer.Exit(1) from error
        except KeyboardInterrupt:
            # If the interrupt was raised in code from a string (named tuples, data classes), Python remembers that, and
            # `python -m` dies of the signal although it was caught; running other code from a string clears this.
            exec("")
            raise typer.Exit(128 + signal.SIGINT) from None
        raise typer.Exit(code or 0)

    return run


def complain(message: str) -> None:
    """Print one line to stderr."""
    errors.print(f"[bold red]error:[/] {escape(' '.join(message.split()))}", soft_wrap=True, highlight=False)


def remark(message: str) -> None:
    """Print a note to stderr, so that stdout contains only results."""
    errors.print(escape(message), soft_wrap=True, highlight=False)

# SPDX-License-Identifier: Apache-2.0
"""Define the `cost-model` command: its verbs, its exit codes, and the behavior that all verbs share.

Exit codes: 0 success, 1 the plan is not feasible (with --add: that model does not fit), 2 wrong usage or unreadable
input.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import math
import signal
from collections.abc import Callable
from typing import Annotated, Any, ParamSpec

import typer
from rich.console import Console
from rich.markup import escape

from cost_model.errors import CostModelError, UsageError
from cost_model.once import OnceGroup

app = typer.Typer(
    name="cost-model",
    cls=OnceGroup,
    help="Decide which model gets which cores, explain the decision, and test it on a simulated machine.",
    epilog="Start with `cost-model plan box128 --total-qps 20000 --explain`. Exit codes: 0 success, 1 the plan is not "
    "feasible or the model of --add does not fit, 2 wrong usage or unreadable input.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
errors = Console(stderr=True)
P = ParamSpec("P")
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON instead of tables.")]


def optional(metavar: str, text: str, **more: Any) -> Any:
    """Return an option without a default value."""
    return typer.Option(metavar=metavar, show_default=False, help=text, **more)


# Verbs in the order of the help text.
_VERBS = ("profile", "plan", "place", "simulate", "calibrate")


@app.callback()
def _common() -> None: ...


def main() -> None:
    """Run the command line."""
    load_verbs()
    app(prog_name="cost-model")


def load_verbs() -> None:
    """Import the modules of the verbs, which register them in `app`."""
    for verb in _VERBS:
        if importlib.util.find_spec(f"cost_model.cli.{verb}"):
            importlib.import_module(f"cost_model.cli.{verb}")


def guarded(command: Callable[P, int | None]) -> Callable[P, None]:
    """Wrap a verb: its errors become one message and an exit code; an exit code that it returns is used."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            for name, value in kwargs.items():
                if isinstance(value, float) and not math.isfinite(value):
                    raise UsageError(f"--{name.replace('_', '-')}: {value} found, expected a finite number")
            code = command(*args, **kwargs)
        except CostModelError as error:
            print_error(str(error))
            raise typer.Exit(error.exit_code) from error
        except BrokenPipeError:
            # The reader has closed our output; typer exits quietly.
            raise
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            print_error(f"{place}{error.strerror or error}, expected a file that can be read or written")
            raise typer.Exit(2) from error
        except KeyboardInterrupt:
            print_error("interrupted")
            raise typer.Exit(128 + signal.SIGINT) from None
        raise typer.Exit(code or 0)

    return run


def print_error(message: str) -> None:
    """Print one line to standard error."""
    errors.print(f"[bold red]error:[/] {escape(' '.join(message.split()))}", soft_wrap=True, highlight=False)


def print_note(message: str) -> None:
    """Print a note to standard error."""
    errors.print(f"[yellow]note:[/] {escape(message)}", soft_wrap=True, highlight=False)


def print_json(data: Any) -> None:
    """Print JSON; raise an error for a number that is not finite."""
    typer.echo(json.dumps(data, indent=2, allow_nan=False))

# SPDX-License-Identifier: Apache-2.0
"""The `graph-tools` command: its verbs, its exit codes, and what every verb does alike.

Exit codes: 0 done, 1 a verification or conversion failed, 2 wrong use or unreadable input.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from graph_tools.errors import GraphToolsError

app = typer.Typer(
    name="graph-tools",
    help="Cut exported TensorFlow models down to what serving needs, and prove that scores stay equal.",
    epilog="Start with: graph-tools inspect MODEL, then graph-tools cut MODEL OUT --dry-run.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
errors = Console(stderr=True)


def _version(wanted: bool) -> None:
    if wanted:
        from graph_tools.version import version

        typer.echo(f"graph-tools {version()}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None: ...


def main() -> None:
    """Run the command line; the only place that turns errors into messages and exit codes."""
    # TensorFlow reads these once, when it is loaded; what they silence is not about the user's model.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    from graph_tools.cli import cut, diff, inspect, verify  # noqa: F401  (each adds its verb)

    sys.exit(_guarded(lambda: app(standalone_mode=False)))


def _guarded(run: Callable[[], Any]) -> int:
    import click

    try:
        answer = run()
    except GraphToolsError as error:
        errors.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
        return error.exit_code
    except click.exceptions.Abort:
        errors.print("stopped")
        return 130
    except click.ClickException as error:
        error.show()
        return 2
    except OSError as error:
        errors.print(f"[bold red]error:[/] {escape(_system_message(error))}", soft_wrap=True, highlight=False)
        return 2
    return answer if isinstance(answer, int) else 0


def _system_message(error: OSError) -> str:
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror or error}"

# SPDX-License-Identifier: Apache-2.0
"""Check that every command line refuses repeated options."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from cost_model.cli.app import app as cost_model
from cost_model.cli.app import load_verbs as load_cost_model
from graph_tools.cli.app import app as graph_tools
from graph_tools.cli.app import load_verbs as load_graph_tools
from serving_proxy.cli.app import app as serving_proxy
from serving_proxy.cli.app import load_commands as load_serving_proxy
from serving_proxy.host.options import parse


def collected() -> dict[str, typer.Typer]:
    load_cost_model()
    load_graph_tools()
    load_serving_proxy()
    return {"cost-model": cost_model, "graph-tools": graph_tools, "serving-proxy": serving_proxy}


def options() -> list[tuple[str, str, str, bool]]:
    """Return program, verb, flag, and whether it may come again, of every option with a value."""
    found = []
    for program, app in collected().items():
        for verb, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
            for param in command.params:
                if param.param_type_name == "option" and not param.is_flag:
                    found.append((program, verb, param.opts[0], param.multiple))
    return found


@pytest.mark.parametrize(("program", "verb", "flag", "several"), options())
def test_repeated_option_with_a_single_value_is_refused(program: str, verb: str, flag: str, several: bool) -> None:
    answer = CliRunner().invoke(collected()[program], [verb, flag, "1", flag, "2"], env={"TERMINAL_WIDTH": "200"})
    # The width of the frame is that of the terminal when the first message was printed.
    said = " ".join(answer.stderr.replace("│", " ").split())
    assert answer.exit_code == 2 or several
    assert ("'1' and '2', expected it once" in said) != several, answer.stderr
    assert several or flag in said


def test_flags_may_repeat_and_all_spellings_of_an_option_count() -> None:
    app = collected()["serving-proxy"]
    answer = CliRunner().invoke(app, ["status", "--json", "--json", "--server=http://127.0.0.1:9", "--server", "x"])
    assert "--server: 'http://127.0.0.1:9' and 'x', expected it once" in " ".join(answer.stderr.split())
    once = CliRunner().invoke(app, ["explain", "--json", "--json", "a", "b"])
    assert "expected it once" not in once.stderr


def test_host_command_refuses_repeated_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse(["--state-dir", "x", "--host-id", "h"]).host_id == "h"
    for words in (["--state-dir", "y"], ["--grpc-port", "1", "--grpc-port=2"], ["--log-level", "info"] * 2):
        with pytest.raises(SystemExit) as refused:
            parse(["--state-dir", "x", *words])
        assert refused.value.code == 2
        assert "expected it once" in capsys.readouterr().err

# SPDX-License-Identifier: Apache-2.0
"""`guard` and `log`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from helpers.hosts.request_log_files import prediction_log, write_log
from helpers.proxies.proxy_runs import ProxyThread
from serving_proxy import Client
from serving_proxy.cli.app import app, load_commands

Make = Callable[..., Path]


def invoke(proxy: ProxyThread, *words: object, code: int = 0) -> str:
    load_commands()
    found = CliRunner().invoke(app, [*map(str, words), "--server", proxy.url])
    assert found.exit_code == code, found.output
    return found.stdout + found.stderr


def as_json(proxy: ProxyThread, *words: object) -> Any:
    return json.loads(invoke(proxy, *words, "--json"))


def test_limits_are_shown_and_changed(proxy: ProxyThread, client: Client, name: str, model: Make) -> None:
    client.deploy(name, model(1), wait=True)
    assert "error_percent 1" in invoke(proxy, "guard", name)
    found = as_json(
        proxy,
        "guard",
        name,
        "--error-percent",
        "0.5%",
        "--nan-percent",
        "none",
        "--window",
        "5m",
        "--promote-after",
        "1h30m",
    )["settings"]
    assert (found["error_percent"], found["nan_percent"]) == (0.5, None)
    assert (found["window_s"], found["promote_after_s"]) == (300.0, 5400.0)
    assert as_json(proxy, "guard", name, "--promote-after", "none")["settings"]["promote_after_s"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--error-percent", "much"), "--error-percent: 'much', expected a number, or none"),
        (("--window", "soon"), "--window: 'soon', expected a duration"),
        (("--action", "delete"), "action"),
        (("--min-requests", "1"), "min_requests"),
    ],
)
def test_wrong_limits_are_refused(
    proxy: ProxyThread, client: Client, name: str, model: Make, words: tuple[str, str], said: str
) -> None:
    client.deploy(name, model(1), wait=True)
    assert said in invoke(proxy, "guard", name, *words, code=2)


def test_request_log_from_on_to_off(proxy: ProxyThread, client: Client, name: str, model: Make) -> None:
    client.deploy(name, model(1), wait=True)
    assert f"{name}: none of the requests recorded" in invoke(proxy, "log", name)
    assert "2.5 % of the requests recorded" in invoke(proxy, "log", name, "--sample", "2.5", "--max-mb", "1")
    file = write_log(proxy.state_dir, name, 1000, [prediction_log(name, [1.0])])
    assert as_json(proxy, "log", name)["files"][0]["path"] == str(file)
    path = Path(as_json(proxy, "log", name, "--merge")["path"])
    assert path.read_bytes() == file.read_bytes()
    assert as_json(proxy, "log", name, "--off", "--delete")["files"] == []
    assert "expected one of them" in invoke(proxy, "log", name, "--off", "--sample", "1", code=2)


def test_the_word_last_is_not_a_path(proxy: ProxyThread, client: Client, name: str, model: Make) -> None:
    client.deploy(name, model(1), wait=True)
    write_log(proxy.state_dir, name, 1000, [prediction_log(name, [1.0])])
    invoke(proxy, "deploy", name, model(2), "--warmup", "last", "--wait")
    assert Path(proxy.desired()["models"][name]["versions"]["2"]["warmup_file"]).parent == proxy.state_dir / "warmups"

# SPDX-License-Identifier: Apache-2.0
"""The command line, as a program of its own, against a real proxy."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from cost_model.profiling.fingerprint import fingerprint
from cost_model.profiling.profile import Profile, cpu_model
from helpers.proxies.proxy_runs import ROOT, ProxyThread
from serving_proxy import Client
from serving_proxy.cli.app import app, load_commands

Make = Callable[..., Path]
COMMANDS = (
    "serve", "deploy", "undeploy", "traffic", "ramp", "pause", "promote", "rollback", "guard", "log", "status",
    "versions", "explain", "events", "drain", "upload-deltas", "clean-store",
)  # fmt: skip


def popen(proxy: ProxyThread, *words: object) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "SERVING_PROXY_SERVER": proxy.url}
    command = [sys.executable, "-m", "serving_proxy", *map(str, words)]
    return subprocess.Popen(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(proxy: ProxyThread, *words: object, code: int = 0) -> tuple[str, str]:
    process = popen(proxy, *words)
    out, err = process.communicate(timeout=300)
    assert process.returncode == code, out + err
    return out, err


def invoke(proxy: ProxyThread, *words: object) -> tuple[int, str, str]:
    """Run a verb in this process: what a verb prints does not depend on how it was started."""
    load_commands()
    found = CliRunner().invoke(app, [*map(str, words), "--server", proxy.url])
    return found.exit_code, found.stdout, found.stderr


def as_json(proxy: ProxyThread, *words: object) -> Any:
    code, out, err = invoke(proxy, *words, "--json")
    assert code == 0, out + err
    return json.loads(out)


def test_a_deployment_from_its_command_to_its_table(proxy: ProxyThread, model: Make, name: str) -> None:
    out, err = run(proxy, "deploy", name, model(3), "--wait")
    assert re.search(r"3 +ready +baseline +100 %", out)
    assert f"{name}/3: " in err
    answer = json.loads(run(proxy, "deploy", name, model(4), "--traffic", 10, "--wait", "--json")[0])
    assert (answer["version"], answer["job"]["state"]) == (4, "succeeded")


def test_tables_show_precision_and_ramp_targets(proxy: ProxyThread, client: Client, model: Make, name: str) -> None:
    (model(4) / "precision").write_text("bf16 weights", encoding="utf-8")
    client.deploy(name, model(3), wait=True)
    assert "precision" not in invoke(proxy, "versions", name)[1].partition("Files")[0]
    client.deploy(name, model(4), wait=True)
    found = invoke(proxy, "ramp", name, 4, "--to", 50, "--over", "1h")[1]
    for shown in (found, invoke(proxy, "status")[1]):
        assert re.search(r"4 +ready +variant .*bf16 weights", shown)
        assert f"{name}/4  ramp of the traffic to 50 %" in shown
    assert "host-0: ready on CPUs 0, in bf16 weights." in invoke(proxy, "explain", name)[1]


def test_every_verb_prints_json(proxy: ProxyThread, client: Client, model: Make, name: str) -> None:
    client.deploy(name, model(3), wait=True)
    client.deploy(name, model(4), wait=True)
    assert as_json(proxy, "traffic", name, "3=90", "4=10%")["versions"][1]["traffic"] == 10
    assert as_json(proxy, "ramp", name, 4, "--to", 50, "--over", "1h")["ramps"][0]["seconds"] == 3600
    assert as_json(proxy, "pause", name)["paused"] is True
    assert as_json(proxy, "pause", name, "--off")["paused"] is False
    assert as_json(proxy, "promote", name, 4, "--wait")["baseline"] == 4
    assert as_json(proxy, "rollback", name)["baseline"] == 3
    code, out, err = invoke(proxy, "rollback", name)
    assert (code, out) == (1, "")
    assert f"{name}: was already rolled back to 3" in err
    assert as_json(proxy, "versions", name)["last_good"] == 3
    assert as_json(proxy, "explain", name)["model"] == name
    assert as_json(proxy, "events", "--model", name, "--limit", 3)[-1]["kind"] == "baseline"
    assert {host["name"] for host in as_json(proxy, "status")["hosts"]} == {"host-0"}
    assert as_json(proxy, "endpoints", name)["endpoints"][0]["host"] == "host-0"
    assert name in [entry["name"] for entry in as_json(proxy, "workload")["models"]]
    assert as_json(proxy, "drain", "--off")[0]["name"] == "host-0"
    assert as_json(proxy, "undeploy", name, "--version", 4)["name"] == name


def test_tables_show_hosts_models_and_versions(proxy: ProxyThread, client: Client, model: Make, name: str) -> None:
    client.deploy(name, model(3), labels=["stable"], wait=True)
    for verb in (["status"], ["versions", name], ["explain", name], ["events"], ["undeploy", name]):
        code, out, _ = invoke(proxy, *verb)
        assert code == 0
        assert name in out, verb


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["promote", "unknown", 4], 1, "error: model 'unknown': not deployed, expected one of"),
        (["traffic", "m", "4"], 2, "error: share '4': no percentage, expected VERSION=PERCENT"),
        (["traffic", "m", "4=x"], 2, "error: share '4=x': 'x', expected a percentage from 0 to 100, as in 4=10"),
        (["traffic", "m", "4=110"], 2, "error: share '4=110': '110', expected a percentage from 0 to 100"),
        (["traffic", "m", "4=1", "4=2"], 2, "error: share '4=2': version 4 appears again, expected each version once"),
        (["ramp", "m", 4, "--to", 5, "--over", "soon"], 2, "error: --over: 'soon', expected a duration"),
        (["deploy", "m", "/gone/3"], 1, "error: model /gone/3: not there"),
        (["deploy", "m", "/etc", "--config", "[]"], 2, "error: --config: a JSON list, expected an object"),
        (["deploy", "m", "/etc", "--config", "{"], 2, "error: --config: "),
        (["deploy", "m", "/etc", "--precision", "x", "--optimize"], 2, "error: request: precision: "),
        (["status", "--token-file", "/gone"], 2, "error: --token-file /gone: "),
    ],
)
def test_errors_are_one_line_with_an_exit_code(proxy: ProxyThread, words: list[object], code: int, said: str) -> None:
    found, out, err = invoke(proxy, *words)
    assert (found, out) == (code, "")
    assert err.startswith(said)
    assert err.count("\n") == 1


def test_a_profile_is_checked_and_kept(proxy: ProxyThread, model: Make, name: str, tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    words = ("deploy", name, model(3), "--profile", file)
    file.write_text("{", encoding="utf-8")
    code, _, err = invoke(proxy, *words)
    assert code == 2
    assert f"error: {file}: " in err
    assert "expected a profile" in err
    made = Profile(fingerprint(model(3)), cpu_model())
    made.add(1, 1, np.full(10, 500.0))
    made.save(file)
    answer = as_json(proxy, *words)
    assert answer["notes"] == [f"{name}/3: the profile is stored, but has no effect without `serve --cores`"]


def test_a_missing_proxy_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    load_commands()
    monkeypatch.setattr("serving_proxy.cli.options._START_S", 1.5)
    found = CliRunner().invoke(app, ["status", "--server", "http://127.0.0.1:9"])
    assert found.exit_code == 2
    waits, refused = found.stderr.splitlines()
    assert waits == "http://127.0.0.1:9: connection refused, waiting 1.5 s for a proxy to start"
    assert refused.endswith("is `serving-proxy serve` running?")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_cancels_the_deployment(proxy: ProxyThread, client: Client, model: Make, name: str, number: int) -> None:
    (model(3) / "slow").touch()
    process = popen(proxy, "deploy", name, model(3), "--wait")
    assert process.stderr is not None
    # It says what it waits for, and a signal before that ends it like any program.
    while f"{name}/3: load" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(number)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert f"{name}/3: cancelled" in err
    assert client.jobs()[0]["state"] == "cancelled"


def test_events_and_status_are_followed(proxy: ProxyThread, client: Client, model: Make, name: str) -> None:
    events = popen(proxy, "events", "--follow", "--json", "--model", name)
    status = popen(proxy, "status", "--watch", "--json")
    client.deploy(name, model(3), wait=True)
    assert events.stdout is not None
    assert status.stdout is not None
    assert json.loads(events.stdout.readline())["kind"] == "deploy"
    assert "hosts" in json.loads(status.stdout.readline())
    for process in (events, status):
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=300)
        assert process.returncode == 130


def test_help_has_examples_whose_options_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    load_commands()
    monkeypatch.setenv("TERMINAL_WIDTH", "200")
    for verb in COMMANDS:
        found = CliRunner().invoke(app, [verb, "--help"])
        assert found.exit_code == 0
        text = re.sub(r"\x1b\[[0-9;]*m", "", found.stdout)
        examples = [line for line in text.splitlines() if "•" in line]
        assert len(examples) >= 2, verb
        assert all(f"serving-proxy {verb}" in line for line in examples)
        described = set(re.findall(r"--[a-z0-9-]+", text.partition("Options")[2]))
        assert set(re.findall(r"--[a-z0-9-]+", "\n".join(examples))) <= described
        assert verb in {"serve", "upload-deltas"} or "--json" in described


def test_every_verb_and_option_is_documented() -> None:
    load_commands()
    text = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("serving_proxy.md", "guard.md"))
    for verb in COMMANDS:
        help_text = CliRunner().invoke(app, [verb, "--help"], env={"TERMINAL_WIDTH": "200"}).stdout
        assert f"serving-proxy {verb}" in text
        options = set(re.findall(r"--[a-z][a-z0-9-]+", re.sub(r"\x1b\[[0-9;]*m", "", help_text)))
        missing = {option for option in options - {"--help"} if option not in text}
        assert not missing, verb


def test_version_and_no_arguments() -> None:
    load_commands()
    assert CliRunner().invoke(app, ["--version"]).stdout.startswith("serving-proxy ")
    found = CliRunner().invoke(app, [])
    assert found.exit_code == 2
    assert "deploy" in found.stdout + found.stderr

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from serving_proxy.cli.app import app, load_commands
from serving_proxy.errors import InvalidError
from serving_proxy.serve.settings import ServeSettings


@pytest.fixture(autouse=True)
def logs_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving_proxy.system.logs.set_up", lambda level: None)


def refused(*words: str) -> str:
    load_commands()
    found = CliRunner().invoke(app, ["serve", *words])
    assert found.exit_code in {1, 2}
    assert found.stderr.count("error: ") == 1
    return found.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--state-dir: nothing found, expected a value"),
        (["--admin-port", "70000"], "--admin-port: 70000 found, "),
        (["--host", "rust"], "--host: 'rust' found, "),
        (["--allow-op", "MatMul"], "--allow-op 'MatMul': expected an op that is refused, such as ReadFile or PyFunc"),
        (["--host-processes", "0"], "--host-processes: 0 found, "),
        (["--cpus", "0-99999"], "--cpus: '0-99999', expected CPUs such as 0-3,8"),
        (["--cpus", "60000"], "--cpus: CPUs 60000, expected some of "),
        (["--model-root", "/gone"], "--model-root /gone: not there, expected a folder"),
        (["--tls-cert", "/gone"], "--tls-cert, --tls-key: one of them, expected both or none"),
        (["--agent-token-file", "SHORT", "--engine", "agents"], "--agent-token-file /"),
        (
            ["--engine", "agents", "--host-processes", "3"],
            "--host-processes 3: with --engine agents, expected it where",
        ),
        (
            ["--engine", "ray", "--replicas", "few"],
            "--replicas: 'few' found, expected a number of at most four digits, or auto",
        ),
        (
            ["--model-store", "/mnt/models"],
            "--model-store '/mnt/models': expected a URL such as file:///mnt/models, with",
        ),
        (["--engine", "agents", "--new-store"], "--new-store: expected --shared-store with it"),
        (["--engine", "agents", "--cores", "control"], "--cores control: moves the cores of this machine, expected"),
        (["--client-ca", "/gone"], "--client-ca: without --tls-cert, expected both"),
        (["--token-file", "/gone"], "--token-file /gone: "),
        (
            ["--admin-address", "0.0.0.0"],
            "--admin-address 0.0.0.0: reachable from other machines, and the token would be sent",
        ),
        (["--admin-auth", "none", "--token-file", "TOKEN"], "--admin-auth none: with --token-file "),
        (["--admin-auth", "what"], "--admin-auth: 'what' found, "),
        (["--admin-tls-cert", "TOKEN"], "--admin-tls-cert, --admin-tls-key: one of them, expected both or none"),
        (
            ["--alert-webhook", "hooks.example/s3cret"],
            "--alert-webhook: 20 characters that are not a URL, expected an ",
        ),
        (["--alert-webhook", "@/gone"], "--alert-webhook @/gone: /gone: not there, expected a file with a URL"),
        (
            [
                "--allow-reload-rpc",
                "--admin-address",
                "0.0.0.0",
                "--token-file",
                "TOKEN",
                "--tls-cert",
                "TOKEN",
                "--tls-key",
                "TOKEN",
            ],
            "--allow-reload-rpc: with TLS on --admin-address 0.0.0.0, which hosts do not trust, expected",
        ),
        (["--replicas", "2"], "--replicas 2: with --engine local, expected --engine ray"),
        (["--engine", "agents", "--ray-address", "a:1"], "--ray-address a:1: with --engine agents, expected --engine"),
        (
            ["--engine", "ray", "--host", "go", "--cpus", "0"],
            "--cpus 0: CPUs of this machine, expected --replica-cores",
        ),
        (["--engine", "ray", "--host", "none"], "--host none: with --engine ray, expected python or go"),
        (
            ["--engine", "ray", "--host", "go", "--host-processes", "2"],
            "--host-processes 2: with --engine ray, expected",
        ),
        (
            ["--engine", "ray", "--host", "go", "--allow-reload-rpc"],
            "--allow-reload-rpc: forwarded to the proxy of this",
        ),
        (
            ["--admin-address", "192.0.2.1", "--admin-tls-cert", "TOKEN", "--admin-tls-key", "TOKEN"],
            "--admin-tls-cert: ",
        ),
    ],
)
def test_wrong_settings_are_one_line(tmp_path: Path, words: list[str], said: str) -> None:
    (tmp_path / "token").write_text("a-token-of-sixteen", encoding="utf-8")
    (tmp_path / "short").write_text("short", encoding="utf-8")
    files = {"TOKEN": str(tmp_path / "token"), "SHORT": str(tmp_path / "short")}
    words = [files.get(word, word) for word in words]
    state = ["--state-dir", str(tmp_path / "state")] if words else []
    host = [] if "--host" in words else ["--host", "none"]
    assert refused(*state, *host, *words).startswith(f"error: {said}")


def test_ray_is_needed_for_its_engine_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InvalidError, match=r"pip install '\.\[ray\]'"):
        ServeSettings(state_dir=tmp_path, engine="ray").check()
    ServeSettings(state_dir=tmp_path, host="none").check()


def test_cores_of_other_machines_are_not_divided_by_the_proxy(tmp_path: Path) -> None:
    found = {}
    for engine in ("local", "agents", "ray"):
        options = ServeSettings(state_dir=tmp_path, engine=engine, cores="plan").control_options()
        settings = options.host_settings
        found[engine] = (options.cores, settings.placed_cores, settings.divided_cpus > 0)
    assert found == {"local": ("plan", False, True), "agents": ("off", True, False), "ray": ("off", True, False)}


def test_a_state_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "expected a folder" in refused("--state-dir", str(tmp_path / "file" / "state"), "--host", "none")


@pytest.mark.parametrize("token", ["", "short", "with a space in between them", "\xe9" * 20])
def test_weak_tokens_are_refused(tmp_path: Path, token: str) -> None:
    (tmp_path / "token").write_text(token, encoding="utf-8")
    said = refused("--state-dir", str(tmp_path / "s"), "--token-file", str(tmp_path / "token"), "--host", "none")
    assert "expected" in said


def test_settings_come_from_variables_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVING_PROXY_ADMIN_PORT", "1234")
    monkeypatch.setenv("SERVING_PROXY_HOST", "none")
    settings = ServeSettings(state_dir=tmp_path, host="go")
    assert (settings.admin_port, settings.host) == (1234, "go")
    monkeypatch.setenv("SERVING_PROXY_MODEL_ROOT", "/models:/more")
    monkeypatch.setenv("SERVING_PROXY_ALLOW_OP", "ReadFile,PyFunc")
    settings = ServeSettings(state_dir=tmp_path)
    assert settings.model_root == (Path("/models"), Path("/more"))
    assert settings.allow_op == ("ReadFile", "PyFunc")

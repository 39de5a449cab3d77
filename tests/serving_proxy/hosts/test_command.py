# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from pathlib import Path

import pytest

from serving_proxy.errors import NotFoundError
from serving_proxy.hosts import command
from serving_proxy.hosts.command import LaunchOptions, host_command

BASE = [
    "--state-dir",
    "/s",
    "--host-id",
    "host-0",
    "--grpc-port",
    "8500",
    "--rest-port",
    "8501",
    "--address",
    "127.0.0.1",
    "--drain-seconds",
    "30",
]


def test_command_of_the_python_host() -> None:
    assert host_command(LaunchOptions(), Path("/s"), "host-0") == [sys.executable, "-m", "serving_proxy.host", *BASE]


def test_every_option_is_passed_on() -> None:
    options = LaunchOptions(
        cpus="0-1",
        tls_cert=Path("/c"),
        tls_key=Path("/k"),
        client_ca=Path("/a"),
        max_message_mb=64,
        drain_seconds=0.5,
        allow_reload_rpc=True,
        admin_url="http://127.0.0.1:8502",
        token_file=Path("/t"),
        program=("host",),
    )
    more = "--tls-cert /c --tls-key /k --client-ca /a --cpus 0-1 --max-message-mb 64"
    reload = "--allow-reload-rpc --admin http://127.0.0.1:8502 --token-file /t"
    assert host_command(options, Path("/s"), "host-0") == ["host", *BASE[:-1], "0.5", *more.split(), *reload.split()]


def test_the_go_host_is_searched_in_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("RECPROCESSOR_HOST", raising=False)
    monkeypatch.setattr(command, "_BUILT", tmp_path / "build" / "recprocessor-host")
    with pytest.raises(NotFoundError, match="recprocessor-host: not in PATH, expected the Go host"):
        host_command(LaunchOptions(kind="go"), Path("/s"), "host-0")
    (tmp_path / "build").mkdir()
    for place in (tmp_path / "build" / "recprocessor-host", tmp_path / "recprocessor-host"):
        place.touch(mode=0o755)
        assert host_command(LaunchOptions(kind="go"), Path("/s"), "host-0")[0] == str(place)
    monkeypatch.setenv("RECPROCESSOR_HOST", "/elsewhere/host")
    assert host_command(LaunchOptions(kind="go"), Path("/s"), "host-0")[0] == "/elsewhere/host"


def test_names_of_hosts() -> None:
    assert LaunchOptions(processes=2).names == ("host-0", "host-1")
    assert LaunchOptions(kind="none", processes=2).names == ()

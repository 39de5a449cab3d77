# SPDX-License-Identifier: Apache-2.0
"""The command line of a host program, the same for Python and Go."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from serving_proxy.errors import NotFoundError

# Host options that `serve` sets from its own options.
NAMED_OPTIONS = frozenset(
    {
        "health-port",
        "state-dir",
        "host-id",
        "grpc-port",
        "rest-port",
        "address",
        "drain-seconds",
        "tls-cert",
        "tls-key",
        "client-ca",
    }
    | {"cpus", "maintenance-cpus", "max-message-mb", "allow-reload-rpc", "allow-model-control", "admin", "token-file"}
)
_BINARY = "recprocessor-host"
_BUILT = Path(__file__).resolve().parents[2] / "build" / "host-go" / _BINARY


@dataclass(frozen=True)
class LaunchOptions:
    """The options with which hosts are started.

    Attributes
    ----------
    kind : str
        `python`, `go` or `none`.
    processes : int
        Number of hosts; those of one machine share their ports.
    health_port : int or None
        Port of the first process; the others use the ports that follow.
    program : tuple of str
        Replaces the program of `kind`.
    drain_seconds : float [s]
        Time for a host's last requests.
    hang_seconds : float [s]
        A host that gives no sign of life for this time is restarted; 0: never.
    own : tuple of str
        Additional arguments of a host's command line.
    admin_url : str
        Address to which a host forwards reload requests.
    """

    kind: str = "python"
    processes: int = 1
    address: str = "127.0.0.1"
    grpc_port: int = 8500
    rest_port: int = 8501
    health_port: int | None = None
    cpus: str | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    max_message_mb: int | None = None
    drain_seconds: float = 30.0
    hang_seconds: float = 20.0
    allow_reload_rpc: bool = False
    allow_model_control: bool = False
    admin_url: str = ""
    token_file: Path | None = None
    own: tuple[str, ...] = ()
    program: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the ids of the hosts."""
        return () if self.kind == "none" else tuple(f"host-{number}" for number in range(self.processes))


def host_program(options: LaunchOptions) -> list[str]:
    """Return the program and its first arguments for a kind of host.

    Raises
    ------
    NotFoundError
        The Go host is not built.
    """
    if options.program:
        return list(options.program)
    if options.kind == "python":
        return [sys.executable, "-m", "serving_proxy.host"]
    found = os.environ.get("RECPROCESSOR_HOST") or shutil.which(_BINARY) or (str(_BUILT) if _BUILT.exists() else None)
    if found is None:
        raise NotFoundError(f"{_BINARY}: not in PATH, expected the Go host, which `make host-go` builds")
    return [found]


def host_command(options: LaunchOptions, state_dir: Path, name: str) -> list[str]:
    """Return the command that starts a host."""
    command = [*host_program(options), "--state-dir", str(state_dir), "--host-id", name]
    command += ["--grpc-port", str(options.grpc_port), "--rest-port", str(options.rest_port)]
    command += ["--address", options.address, "--drain-seconds", f"{options.drain_seconds:g}"]
    if options.health_port is not None:
        command += ["--health-port", str(options.health_port + options.names.index(name))]
    given = (
        ("--tls-cert", options.tls_cert),
        ("--tls-key", options.tls_key),
        ("--client-ca", options.client_ca),
        ("--cpus", options.cpus),
        ("--max-message-mb", options.max_message_mb),
    )
    for flag, value in given:
        command += [flag, str(value)] if value is not None else []
    if options.allow_reload_rpc or options.allow_model_control:
        command += ["--allow-reload-rpc"] if options.allow_reload_rpc else []
        command += ["--allow-model-control"] if options.allow_model_control else []
        command += ["--admin", options.admin_url]
        command += ["--token-file", str(options.token_file)] if options.token_file is not None else []
    return [*command, *options.own]

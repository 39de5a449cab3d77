# SPDX-License-Identifier: Apache-2.0
"""The command line of a host, the same for the Python and the Go host."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from serving_proxy.host.unix_sockets import MOST_BYTES
from serving_proxy.system.listening import most_connections

MIB = 1024 * 1024


@dataclass(frozen=True)
class HostOptions:
    """The options of a host; the help texts in `parse` describe them."""

    state_dir: Path
    host_id: str = "host-0"
    address: str = "127.0.0.1"
    grpc_port: int = 8500
    rest_port: int = 8501
    health_port: int | None = None
    grpc_socket: Path | None = None
    rest_socket: Path | None = None
    socket_mode: int = 0o600
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    cpus: str | None = None
    maintenance_cpus: str | None = None
    allow_reload_rpc: bool = False
    allow_model_control: bool = False
    admin: str | None = None
    cors_origin: tuple[str, ...] = ()
    token_file: Path | None = None
    max_message_mb: int = 64
    max_request_mb_in_flight: int = 0
    max_connections: int = 4096
    read_seconds: float = 20.0
    idle_seconds: float = 300.0
    drain_seconds: float = 30.0
    grpc_keepalive_seconds: float = 120.0
    grpc_keepalive_timeout_seconds: float = 20.0
    grpc_min_ping_seconds: float = 10.0
    grpc_max_connection_age_seconds: float = 0.0
    grpc_max_connection_idle_seconds: float = 0.0
    log_format: str = "json"
    log_level: str = "info"

    @property
    def max_message_bytes(self) -> int:
        """Return the size of the largest request, compressed or not."""
        return self.max_message_mb * MIB

    def most_connections(self, wanted: int) -> int:
        """Return the number of connections that gRPC and HTTP may each have: `wanted`, or fewer if descriptors are
        scarce.
        """
        # gRPC counts the connections of its socket with those of its port; HTTP counts them separately.
        servers = 2 if self.rest_socket is None else 3
        return most_connections(wanted, servers=servers, health_port=self.health_port is not None)


def _between(low: float, high: float, kind: type[int] | type[float]) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = kind(-1)
        # Written so that NaN is refused too.
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"'{text}', expected {low:g} to {high:g}")
        return value

    return read


class _Once(argparse.Action):
    """Accepts a value once; otherwise the last of several values would silently win."""

    _taken: object = None

    def __call__(self, parser: object, namespace: argparse.Namespace, values: object, flag: str | None = None) -> None:
        if self._taken is not None:
            raise argparse.ArgumentError(self, f"'{self._taken}' and '{values}', expected it once")
        self._taken = values
        setattr(namespace, self.dest, values)


_PORT = _between(0, 65535, int)
_SECONDS = _between(0, 86400, float)


def _ping(text: str) -> float:
    # gRPC for Go does not send pings more often.
    return 0.0 if _SECONDS(text) == 0 else _between(1, 86400, float)(text)


def _socket(parser: argparse.ArgumentParser, flag: str, text: str, host_id: str) -> Path:
    """Read the path of a Unix domain socket, also in the form of an address, in which {id} stands for the host's id."""
    path = text.removeprefix("unix:").replace("{id}", host_id)
    if not path or len(os.fsencode(Path(path).absolute())) > MOST_BYTES:
        parser.error(f"argument {flag}: '{text}', expected a path of at most {MOST_BYTES} bytes")
    return Path(path).absolute()


def _mode(text: str) -> int:
    if not re.fullmatch("0?[0-7]{3}", text):
        raise argparse.ArgumentTypeError(f"'{text}', expected permissions in octal, as in 660")
    return int(text, 8)


def _origin(text: str) -> str:
    """Check an origin, in the form that browsers send, without a path."""
    scheme, mark, host = text.partition("://")
    if text != "*" and not (scheme and mark and host and "/" not in host):
        raise argparse.ArgumentTypeError(f"'{text}', expected an origin as in https://shop.example, or *")
    return text


class _Raising(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def check_options(arguments: Sequence[str]) -> str | None:
    """Return an error text for invalid options of a host; None if they are valid."""
    try:
        _read(_Raising(add_help=False, allow_abbrev=False), ["--state-dir", ".", *arguments])
    except ValueError as error:
        return str(error)
    return None


def parse(arguments: Sequence[str] | None = None) -> HostOptions:
    """Parse a command line; an invalid one ends the program with a message and code 2."""
    parser = argparse.ArgumentParser(
        prog="python -m serving_proxy.host", description="Serve the models of a state directory over gRPC and HTTP."
    )
    return _read(parser, arguments)


def _read(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> HostOptions:
    for name in (None, "store"):
        parser.register("action", name, _Once)
    _add_ports(parser.add_argument)
    _add_process(parser.add_argument)
    _add_limits(parser.add_argument)
    _add_grpc_connections(parser.add_argument)
    given = vars(parser.parse_args(arguments))
    for name in ("grpc_socket", "rest_socket"):
        if given[name] is not None:
            given[name] = _socket(parser, f"--{name.replace('_', '-')}", given[name], given["host_id"])
    options = HostOptions(**{**given, "cors_origin": tuple(given["cors_origin"])})
    _check(parser, options)
    return options


def _add_ports(add: Callable[..., object]) -> None:
    add("--state-dir", type=Path, required=True, metavar="DIR", help="folder with desired.json")
    add("--host-id", default="host-0", metavar="ID", help="name of this host; one process at a time may have it")
    add("--address", default="127.0.0.1", metavar="IP", help="address at which to listen (127.0.0.1)")
    add("--grpc-port", type=_PORT, default=8500, metavar="N", help="gRPC port; 0: any free one (8500)")
    add("--rest-port", type=_PORT, default=8501, metavar="N", help="HTTP port; 0: any free one (8501)")
    add("--health-port", type=_PORT, metavar="N", help="HTTP port for health and metrics, without TLS, open from the "
        "start; 0: any free one (off)")  # fmt: skip
    for kind, what in (("grpc", "gRPC"), ("rest", "HTTP")):
        add(f"--{kind}-socket", metavar="PATH", help=f"Unix domain socket for {what}, without TLS, beside "
            "the port; {id} stands for the host's id (off)")  # fmt: skip
    add("--socket-mode", type=_mode, default=0o600, metavar="OCTAL", help="permissions of these sockets (600)")
    add("--tls-cert", type=Path, metavar="FILE", help="certificate chain (PEM); turns on TLS for both ports")
    add("--tls-key", type=Path, metavar="FILE", help="private key of --tls-cert (PEM)")
    add("--client-ca", type=Path, metavar="FILE", help="clients need a certificate that these authorities have signed "
        "(PEM)")  # fmt: skip
    add("--cors-origin", type=_origin, action="append", default=[], metavar="ORIGIN", help="origin whose web pages may "
        "send requests over HTTP, as in https://shop.example, or *; repeatable")  # fmt: skip


def _add_process(add: Callable[..., object]) -> None:
    add("--cpus", metavar="LIST", help="CPUs that the process may use, as in 0-3,8")
    add(
        "--maintenance-cpus", metavar="LIST", help="CPUs on which versions are loaded; by default those of desired.json"
    )
    add("--allow-reload-rpc", action="store_true", help="forward HandleReloadConfigRequest to the proxy")
    add("--allow-model-control", action="store_true", help="forward requests to load and unload models to the proxy")
    add("--admin", metavar="URL", help="URL of the proxy's admin API, as in http://127.0.0.1:8502")
    add("--token-file", type=Path, metavar="FILE", help="file with the token of the admin API")
    add("--log-format", choices=("json", "text"), default="json", help="format of the log lines (json)")
    add("--log-level", choices=("debug", "info", "warning", "error"), default="info", help="level of the log (info)")


def _add_limits(add: Callable[..., object]) -> None:
    add("--max-message-mb", type=_between(1, 2047, int), default=64, metavar="N", help="largest request, in MiB (64)")
    add("--max-request-mb-in-flight", type=_between(0, 2**30, int), default=0, metavar="N",
        help="memory of all requests in flight, in MiB (0: a tenth of the machine's or the cgroup's)")  # fmt: skip
    add("--max-connections", type=_between(1, 1000000, int), default=4096, metavar="N", help="largest number of HTTP "
        "connections (4096)")  # fmt: skip
    add("--read-seconds", type=_SECONDS, default=20.0, metavar="S", help="time for the head of an HTTP request, and "
        "again for its body (20)")  # fmt: skip
    add("--idle-seconds", type=_SECONDS, default=300.0, metavar="S", help="close an HTTP connection that is idle for "
        "this time (300)")  # fmt: skip
    add("--drain-seconds", type=_SECONDS, default=30.0, metavar="S", help="time for requests in flight when the host "
        "ends (30)")  # fmt: skip


def _add_grpc_connections(add: Callable[..., object]) -> None:
    add("--grpc-keepalive-seconds", type=_ping, default=120.0, metavar="S", help="ping a connection over which nothing "
        "has come for this time; 0: never (120)")  # fmt: skip
    add("--grpc-keepalive-timeout-seconds", type=_ping, default=20.0, metavar="S", help="close a connection if a ping "
        "is not answered within this time; 0: never (20)")  # fmt: skip
    add("--grpc-min-ping-seconds", type=_SECONDS, default=10.0, metavar="S", help="close connections of clients that "
        "ping more often than this (10)")  # fmt: skip
    add("--grpc-max-connection-age-seconds", type=_SECONDS, default=0.0, metavar="S", help="ask clients to reconnect "
        "after this time, so that a load balancer spreads them; 0: never (0)")  # fmt: skip
    add("--grpc-max-connection-idle-seconds", type=_SECONDS, default=0.0, metavar="S", help="ask clients to reconnect "
        "after this time without a call; 0: never (0)")  # fmt: skip


def _check(parser: argparse.ArgumentParser, options: HostOptions) -> None:
    """End with an error of the parser if options contradict each other."""
    if (options.tls_cert is None) != (options.tls_key is None):
        parser.error("--tls-cert and --tls-key: one of them, expected both or none")
    if options.grpc_socket is not None and options.grpc_socket == options.rest_socket:
        parser.error(f"--grpc-socket and --rest-socket: both '{options.grpc_socket}', expected two paths")
    if options.client_ca is not None and options.tls_cert is None:
        parser.error("--client-ca: no --tls-cert, expected one")
    for flag, on in (("reload-rpc", options.allow_reload_rpc), ("model-control", options.allow_model_control)):
        if on and not options.admin:
            parser.error(f"--allow-{flag}: no --admin, expected the URL of the proxy")

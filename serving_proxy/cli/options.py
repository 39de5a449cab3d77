# SPDX-License-Identifier: Apache-2.0
"""Options that every verb has, and functions that read typed values."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from serving_proxy.access.certificates import trust
from serving_proxy.access.tokens import read_token
from serving_proxy.artifacts.urls import is_url
from serving_proxy.cli.app import remark
from serving_proxy.client import Client
from serving_proxy.errors import InvalidError, ProxyError
from serving_proxy.system.files import read_regular

Server = Annotated[
    str, typer.Option("--server", metavar="URL", envvar="SERVING_PROXY_SERVER", help="URL of the proxy's admin port.")
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        envvar="SERVING_PROXY_TOKEN_FILE",
        show_default=False,
        help="File with the admin token, if the proxy requires one.",
    ),
]
CaFile = Annotated[
    Path | None,
    typer.Option(
        "--ca-file",
        metavar="FILE",
        envvar="SERVING_PROXY_CA_FILE",
        show_default=False,
        help="Certificates to trust for an https server.",
    ),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the model.")]
VersionArgument = Annotated[int, typer.Argument(metavar="VERSION", min=1, help="Number of the version.")]
Wait = Annotated[
    bool, typer.Option("--wait", metavar="", help="Wait until the deployment has ended; Ctrl-C cancels it.")
]
Timeout = Annotated[
    str | None, typer.Option(metavar="TIME", show_default=False, help="Longest time to wait, such as 30s, 15m or 1h.")
]

# A verb is often typed right after `serve &`, which opens its port a second or two later.
_START_S = 10.0
_MOST_BYTES = 1024 * 1024
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
_UNITS = {None: 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def connect(server: str, token_file: Path | None, ca_file: Path | None = None) -> Client:
    """Make a client."""
    if ca_file is not None:
        trust(ca_file)
    token = None if token_file is None else read_token(token_file)
    return Client(server, token, verify=ca_file or True, start_timeout=_START_S, told=remark)


def print_json(data: Any) -> None:
    """Print JSON to stdout."""
    typer.echo(json.dumps(data, indent=2))


def place(text: str) -> str:
    """Return a URL as it is, and a path as an absolute one: a relative path belongs to the folder of the command."""
    return text if is_url(text) else str(Path(text).absolute())


def seconds(text: str, option: str) -> float:
    """Read a duration such as `90`, `30s`, `15m`, `1h` or `1h30m`.

    Raises
    ------
    InvalidError
    """
    parts = list(_DURATION.finditer(text.strip()))
    if (
        not parts
        or "".join(part[0] for part in parts) != text.strip()
        or (len(parts) > 1 and any(not part[2] for part in parts))
    ):
        raise InvalidError(f"{option}: '{text}', expected a duration such as 30s, 15m or 1h")
    return sum(float(part[1]) * _UNITS[part[2]] for part in parts)


def shares(texts: list[str]) -> dict[int | str, float]:
    """Read `VERSION=PERCENT` arguments.

    Raises
    ------
    InvalidError
    """
    found: dict[int | str, float] = {}
    for text in texts:
        version, equals, percent = text.partition("=")
        if not equals or not version:
            raise InvalidError(f"share '{text}': no {'version' if equals else 'percentage'}, expected VERSION=PERCENT")
        try:
            share = float(percent.removesuffix("%"))
        except ValueError:
            share = math.nan
        if not 0 <= share <= 100:
            raise InvalidError(f"share '{text}': '{percent}', expected a percentage from 0 to 100, as in {version}=10")
        if version in found:
            raise InvalidError(f"share '{text}': version {version} appears again, expected each version once")
        found[version] = share
    return found


def json_object(text: str | None, option: str) -> dict[str, Any] | None:
    """Read an option that contains a JSON object, or `@FILE` with one.

    Raises
    ------
    InvalidError
    """
    if text is None:
        return None
    try:
        if text.startswith("@"):
            text = read_regular(Path(text[1:]), _MOST_BYTES, "a file with a JSON object").decode()
        found = json.loads(text)
    except (ProxyError, ValueError, RecursionError) as error:
        raise InvalidError(f"{option}: {error}, expected a JSON object, or @FILE") from error
    if not isinstance(found, dict):
        raise InvalidError(f"{option}: a JSON {type(found).__name__}, expected an object")
    return found

# SPDX-License-Identifier: Apache-2.0
"""Tokens, and which addresses only this machine can reach."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from serving_proxy.errors import InvalidError

_LEAST_TOKEN = 16


def read_token(file: Path) -> str:
    """Read the token that clients have to send.

    Raises
    ------
    InvalidError
        The file cannot be read, or holds no usable token.
    """
    try:
        token = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise InvalidError(f"--token-file {file}: {error}, expected a file with a token") from error
    if len(token) < _LEAST_TOKEN or any(one.isspace() for one in token):
        raise InvalidError(
            f"--token-file {file}: {len(token)} characters, expected one word of at least {_LEAST_TOKEN}"
        )
    return token


def is_loopback(address: str) -> bool:
    """Say whether an address or a name is of this machine alone."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False

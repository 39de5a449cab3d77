# SPDX-License-Identifier: Apache-2.0
"""Certificates of admin ports, and messages that say what is wrong with a connection to one."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx

from serving_proxy.errors import InvalidError


def trust(file: Path | None, named: str = "--ca-file ") -> ssl.SSLContext:
    """Return what a client trusts: the certificates in a file, or those of the system.

    Raises
    ------
    InvalidError
        The file cannot be read, or contains no certificate.
    """
    try:
        return ssl.create_default_context(cafile=None if file is None else str(file))
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError):
            raise InvalidError(f"{named}{file}: not there, expected a file") from error
        raise InvalidError(f"{named}{file}: {_reason(error)}, expected a PEM file with certificates") from error


def check_certificate(chain: Path, key: Path, named: str) -> None:
    """Raise `InvalidError` if a server could not use a certificate and its key.

    Parameters
    ----------
    chain, key : Path
    named : str
        The options of both, for the message.
    """
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(chain, key, password="")
    except (OSError, ValueError) as error:
        raise InvalidError(
            f"{named}: {chain}, {key}: {_reason(error)}, expected PEM files of a certificate and its key"
        ) from error


def connection_fault(server: str, error: Exception, hint: str = "") -> str:
    """Return a message about a server that could not be reached, or does not speak the same protocol.

    Parameters
    ----------
    server : str
        Its URL.
    error : Exception
        From httpx or `ssl`.
    hint : str
        What the user may look for if nothing answers there.
    """
    said = str(error).rstrip(".") or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in said:
        reason = said.partition("verify failed: ")[2].partition(" (_ssl")[0].rstrip(".")
        wanted = "a name that it has" if "mismatch" in reason else "--ca-file with the authority that signed it"
        return f"{server}: its certificate is refused ({reason}), expected {wanted}"
    if "WRONG_VERSION_NUMBER" in said:
        return f"{server}: no TLS at this port, expected a proxy with TLS, or http://"
    if isinstance(error, httpx.RemoteProtocolError) and server.startswith("http://"):
        return f"{server}: {said}, expected a proxy; if its admin port has TLS, https://"
    return f"{server}: {said}, expected a proxy{hint}"


def _reason(error: Exception) -> str:
    """Return the words of an error of `ssl` or of the system."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return (error.strerror if isinstance(error, OSError) else None) or str(error)

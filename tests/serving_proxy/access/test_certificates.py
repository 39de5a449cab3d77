# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest

from helpers.system.certificates import make_authority, make_certificate
from serving_proxy.access.certificates import check_certificate, connection_fault, trust
from serving_proxy.errors import InvalidError


def test_files_of_certificates_are_checked(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, "ca")
    made, other = make_certificate(tmp_path, "a", authority), make_certificate(tmp_path, "b", authority)
    check_certificate(made.chain, made.key, "--admin-tls-cert")
    trust(authority.chain)
    garbage = tmp_path / "garbage"
    garbage.write_text("no certificate")
    with pytest.raises(InvalidError, match=r"^--admin-tls-cert: .*a\.crt, .*b\.key: key values mismatch, expected PEM"):
        check_certificate(made.chain, other.key, "--admin-tls-cert")
    with pytest.raises(InvalidError, match=r"^--admin-tls-cert: .*garbage, .*a\.key: .+, expected PEM files"):
        check_certificate(garbage, made.key, "--admin-tls-cert")
    with pytest.raises(InvalidError, match=r"^--ca-file .*garbage: no certificate or crl found, expected a PEM file"):
        trust(garbage)
    with pytest.raises(InvalidError, match=r"^--ca-file /gone: not there, expected a file"):
        trust(Path("/gone"))


@pytest.mark.parametrize(
    ("server", "error", "said"),
    [
        (
            "https://p:1",
            ssl.SSLError(
                "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate (_ssl.c:9)"
            ),
            "its certificate is refused (self-signed certificate), expected --ca-file with the authority that",
        ),
        (
            "https://p:1",
            httpx.ConnectError(
                "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: Hostname mismatch, certificate is not "
                "valid for 'p'. (_ssl.c:9)"
            ),
            "its certificate is refused (Hostname mismatch, certificate is not valid for 'p'), expected a name that",
        ),
        (
            "https://p:1",
            ssl.SSLError("[SSL: WRONG_VERSION_NUMBER] wrong version number"),
            "no TLS at this port, expected",
        ),
        (
            "http://p:1",
            httpx.RemoteProtocolError("Server disconnected without sending a response."),
            "Server disconnected without sending a response, expected a proxy; if its admin port has TLS, https://",
        ),
        ("http://p:1", httpx.ReadError(""), "ReadError, expected a proxy; is it running?"),
    ],
)
def test_messages_say_what_to_change(server: str, error: Exception, said: str) -> None:
    assert connection_fault(server, error, "; is it running?").startswith(f"{server}: {said}")

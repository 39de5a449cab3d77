# SPDX-License-Identifier: Apache-2.0
"""TLS certificates of the server, and those required of clients, for both ports."""

from __future__ import annotations

import ssl
from typing import Any

import grpc

from serving_proxy.host.options import HostOptions


def grpc_credentials(options: HostOptions) -> Any:
    """Return the credentials of a gRPC port; None without TLS."""
    if options.tls_cert is None or options.tls_key is None:
        return None
    roots = None if options.client_ca is None else options.client_ca.read_bytes()
    return grpc.ssl_server_credentials(
        [(options.tls_key.read_bytes(), options.tls_cert.read_bytes())],
        root_certificates=roots,
        require_client_auth=roots is not None,
    )


def http_context(options: HostOptions) -> ssl.SSLContext | None:
    """Return the TLS context of an HTTP port; None without TLS."""
    if options.tls_cert is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(options.tls_cert, options.tls_key)
    if options.client_ca is not None:
        context.load_verify_locations(options.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context

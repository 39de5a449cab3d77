# SPDX-License-Identifier: Apache-2.0
"""The built-in host: puts gRPC and HTTP in front of a ModelHost, bytes in and bytes out.

    python -m serving_proxy.host --state-dir DIR --host-id host-0 --grpc-port 8500 --rest-port 8501

No tensor is decoded here, nor any message: a table says which protocol and method of the library a gRPC method or a URL
is. docs/hosts.md describes it for users.
"""

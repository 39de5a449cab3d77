# SPDX-License-Identifier: Apache-2.0
"""The built-in host: serve a ModelHost over gRPC and HTTP, bytes in and bytes out.

    python -m serving_proxy.host --state-dir DIR --host-id host-0 --grpc-port 8500 --rest-port 8501

Neither tensors nor messages are decoded here: a table maps gRPC methods and URLs to protocols and methods of the
library.
docs/hosts.md describes the host for users.
"""

# SPDX-License-Identifier: Apache-2.0
"""The library's statuses as gRPC and HTTP statuses, and the host's message for a lack of memory."""

from __future__ import annotations

import grpc

from processor.errors import ProcessorError

GRPC: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}

HTTP: dict[int, int] = {
    0: 200,
    1: 499,
    3: 400,
    4: 504,
    5: 404,
    6: 409,
    7: 403,
    8: 429,
    9: 400,
    10: 409,
    11: 400,
    12: 501,
    14: 503,
    16: 401,
}

#: Memory may be short although the counted bytes fit, because gRPC and Python keep copies of their own.
NO_MEMORY = "request: no memory left for it beside those in flight (max_request_bytes_in_flight)"


def http_status(code: int) -> int:
    """Return the HTTP status of a canonical code."""
    return HTTP.get(code, 500)


def retry_after_us(error: ProcessorError) -> int:
    """Return when a refused request may be retried [us from now]; 0 if that is unknown."""
    answer = error.answer
    return 0 if answer is None else answer.retry_after_us

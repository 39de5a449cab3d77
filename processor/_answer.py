# SPDX-License-Identifier: Apache-2.0
"""Define the response of a host."""

from __future__ import annotations

from typing import NamedTuple


class Answer(NamedTuple):
    """Contain the response of a host and the version that produced it.

    Attributes
    ----------
    data : bytes
        The serialized response; empty after a failure.
    model_name : str or None
        None if the request named no known model.
    model_version : int
        -1 if there is none.
    arm : str or None
        Why this version was chosen: "baseline", "arm", "pinned" or "fallback".
    session : int
        -1 if no session ran the request.
    cpuset : str or None
        The CPUs of the session, for example "0-3"; "" if the session may run on any CPU.
    queue_ns, decode_ns, run_ns, encode_ns, total_ns : int [ns]
        Times spent waiting, decoding the request, in TensorFlow, encoding the response, and from admission to response.
    batch_rows : int
        Rows of the batch that contained the request; 0 if the request ran alone.
    retry_after_us : int [us]
        When to retry, if the request was refused because too many requests wait; otherwise 0.
    header_length : int [bytes]
        For "kserve_json": length of the JSON that precedes binary data; 0 if the whole response is JSON.
    epoch : int
        Epoch of the timeline that the version follows; -1 if it follows none.
    age_us : int [us]
        Time since the newest sample that the epoch knows of; -1 if that is not known.
    """

    data: bytes
    model_name: str | None
    model_version: int
    arm: str | None
    session: int
    cpuset: str | None
    queue_ns: int
    decode_ns: int
    run_ns: int
    encode_ns: int
    total_ns: int
    batch_rows: int
    retry_after_us: int
    header_length: int
    epoch: int
    age_us: int

# SPDX-License-Identifier: Apache-2.0
"""What a host answers."""

from __future__ import annotations

from typing import NamedTuple


class Answer(NamedTuple):
    """What a host answered, and who did.

    Attributes
    ----------
    data : bytes
        The serialized response; empty after a failure.
    model_name : str or None
        None if the request was for no model that is known.
    model_version : int
        -1 if there is none.
    arm : str or None
        Why this version answered: "baseline", "arm", "pinned" or "fallback".
    session : int
        -1 if none ran it.
    cpuset : str or None
        The CPUs of the session, as in "0-3"; "" if it runs anywhere.
    queue_ns, decode_ns, run_ns, encode_ns, total_ns : int [ns]
        Waiting, reading the request, inside TensorFlow, writing the response, and all from admission to the answer.
    batch_rows : int
        Rows of the batch that it was part of; 0 if it ran alone.
    retry_after_us : int [us]
        When to try again, if it was refused because too many wait; else 0.
    header_length : int [bytes]
        Of "kserve_json": the JSON that goes before binary data; 0 if all is JSON.
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

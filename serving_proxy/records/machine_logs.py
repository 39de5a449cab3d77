# SPDX-License-Identifier: Apache-2.0
"""The messages about the request logs of machines: what the proxy asks an agent, and what the agent answers.

The proxy cannot reach agents. So its questions are in its answers to reports, and an agent sends each answer by a
request of its own, and the recorded requests in parts after that.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from serving_proxy.records.message import NAME, Message

LOGS_FEATURE = "agent:request_logs"
"""Feature of agents that answer questions about request logs."""
LIST, NEWEST, DELETE = "list", "newest", "delete"
PART_BYTES = 4 * 1024 * 1024
"""Largest part in which recorded requests are sent."""
_MOST_BYTES = 2**40
_Name = Annotated[str, Field(pattern=f"^{NAME}$")]


class LogAsk(Message):
    """A question about the request log of a model.

    Attributes
    ----------
    id : str
    what : str
        `list`: the files; `newest`: send the newest requests; `delete`: remove the files.
    model : str
    records, bytes : int
        Most of them that are to be sent.
    """

    id: str = Field(pattern="^[0-9a-f]{32}$")
    what: str
    model: _Name
    records: int = Field(default=0, ge=0)
    bytes: int = Field(default=0, ge=0, le=_MOST_BYTES)


class LoggedFile(Message):
    """A file with recorded requests.

    Attributes
    ----------
    path : str
        Its path on the machine.
    began : int [us since 1970]
        When its first request was written, by the clock of the machine.
    """

    host: _Name
    path: str = Field(max_length=4096)
    began: int = Field(ge=0)
    bytes: int = Field(ge=0)


class LogAnswer(Message):
    """The answer of a machine.

    Attributes
    ----------
    status, error : str
        Status and message of the error, if there is one; "": there is none.
    files : tuple of LoggedFile
        Of `list`.
    records, bytes, sha256
        Of `newest`: what is sent after this.
    removed : int
        Of `delete`: number of files.
    """

    status: str = Field(default="", max_length=64)
    error: str = Field(default="", max_length=2000)
    files: tuple[LoggedFile, ...] = ()
    records: int = Field(default=0, ge=0)
    bytes: int = Field(default=0, ge=0, le=_MOST_BYTES)
    sha256: str = Field(default="", pattern="^([0-9a-f]{64})?$")
    removed: int = Field(default=0, ge=0)


class Received(Message):
    """How many bytes of an answer the proxy has."""

    received: int = Field(ge=0)

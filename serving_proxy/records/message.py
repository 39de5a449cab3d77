# SPDX-License-Identifier: Apache-2.0
"""The parent of the messages between agents and the proxy, and what names in them look like."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
"""Names of machines, hosts and models."""


class Message(BaseModel):
    """Parent of all messages; what a later release adds is ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

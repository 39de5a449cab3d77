# SPDX-License-Identifier: Apache-2.0
"""The parent of all views."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class View(BaseModel):
    """Parent of all views."""

    model_config = ConfigDict(frozen=True)

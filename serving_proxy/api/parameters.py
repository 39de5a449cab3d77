# SPDX-License-Identifier: Apache-2.0
"""Parameters of paths and queries that several routes use."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

Name = Annotated[str, Path(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")]
Limit = Annotated[int, Query(ge=1, le=1000)]
After = Annotated[int, Query(ge=0, le=2**63 - 1)]
Wait = Annotated[float, Query(ge=0, le=86400)]

# SPDX-License-Identifier: Apache-2.0
"""The persistent state: records, jobs and events in one SQLite file."""

from __future__ import annotations

from serving_proxy.store.database import Database, StateLock, check_schema, newest_schema, schema_of
from serving_proxy.store.repository import Event, JobRow, Repository
from serving_proxy.store.reserve import Reserve

__all__ = [
    "Database",
    "Event",
    "JobRow",
    "Repository",
    "Reserve",
    "StateLock",
    "check_schema",
    "newest_schema",
    "schema_of",
]

# SPDX-License-Identifier: Apache-2.0
"""The options of `serving-proxy agent`, declared once for its command line and its environment variables.

This module is imported by every command, so it imports little; `settings.py` checks and uses the values.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from serving_proxy.records.model_cache import ModelCache, ModelCacheMb
from serving_proxy.records.option import CliOption


class AgentOptions(BaseModel):
    """The options of `agent`, in the order of its help text; each help text says what the option means."""

    server: Annotated[
        tuple[str, ...],
        CliOption("URL", "Admin port of the proxy; repeatable: the proxy that leads is found among them. Required."),
    ]
    state_dir: Annotated[Path, CliOption("DIR", "Directory that the hosts of this machine follow. Required.")]
    machine: Annotated[
        str | None, CliOption("NAME", "Name of this machine, which no other has; by default its host name.")
    ] = None
    address: Annotated[
        str | None,
        CliOption("ADDRESS", "Address at which clients reach the hosts of this machine; by default its name."),
    ] = None
    token_file: Annotated[Path | None, CliOption("FILE", "File with the token of the proxy's --agent-token-file.")] = (
        None
    )
    ca_file: Annotated[Path | None, CliOption("FILE", "Certificates to trust for an https server.")] = None
    retry_timeout: Annotated[
        Annotated[float, Field(gt=0, le=3600)],
        CliOption("SECONDS", "Longest time between two attempts to fetch a version's files."),
    ] = 30.0
    model_cache: ModelCache = None
    model_cache_mb: ModelCacheMb = None
    log_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR"], CliOption("LEVEL", "DEBUG, INFO, WARNING or ERROR.")
    ] = "INFO"

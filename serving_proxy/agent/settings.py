# SPDX-License-Identifier: Apache-2.0
"""Settings of `serving-proxy agent`: from the command line, else from variables `SERVING_PROXY_AGENT_…`."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import Any
from urllib.parse import urlsplit

from pydantic import field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from serving_proxy.access.tokens import check_clear_text, read_token
from serving_proxy.agent.options import AgentOptions
from serving_proxy.errors import InvalidError
from serving_proxy.records.agents import check_machine

_HOST_NAME = re.compile(r"[A-Za-z0-9_.-]{1,253}")


class AgentSettings(AgentOptions, BaseSettings):
    """The settings of `agent`: its options, which are also read from environment variables."""

    # Without decoding, a list in a variable is not JSON: `_split_list` splits it.
    model_config = SettingsConfigDict(env_prefix="SERVING_PROXY_AGENT_", extra="ignore", enable_decoding=False)

    @field_validator("server", mode="before")
    @classmethod
    def _split_list(cls, given: Any) -> Any:
        return tuple(part.strip() for part in given.split(",") if part.strip()) if isinstance(given, str) else given

    @property
    def name(self) -> str:
        """Return the name of the machine."""
        return self.machine or socket.gethostname()

    @property
    def reachable_address(self) -> str:
        """Return the address at which clients reach the hosts of this machine."""
        return self.address or self.name

    def check(self) -> None:
        """Raise `InvalidError` if a setting is invalid."""
        if not self.server:
            raise InvalidError("--server: nothing, expected the URL of a proxy")
        for server in self.server:
            place = urlsplit(server)
            if place.scheme not in {"http", "https"} or not place.hostname or place.path.strip("/") or place.query:
                raise InvalidError(f"--server {server}: expected a URL such as https://proxy:8502")
        check_machine(self.name)
        if self.address is not None and not _is_address(self.address):
            raise InvalidError(f"--address {self.address[:150]}: expected a name or an IP address without a port")
        if self.token_file is not None:
            read_token(self.token_file)
            for server in self.server:
                check_clear_text(server)
        if self.ca_file is not None and not self.ca_file.is_file():
            raise InvalidError(f"--ca-file {self.ca_file}: not there, expected a file")

    @property
    def token(self) -> str | None:
        """Return the token for the proxy; it is read at each connection, so that it may be replaced."""
        return None if self.token_file is None else read_token(self.token_file)


def _is_address(text: str) -> bool:
    """Return whether a text is a name, or an IPv4 or IPv6 address."""
    if _HOST_NAME.fullmatch(text):
        return True
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True

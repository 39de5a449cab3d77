# SPDX-License-Identifier: Apache-2.0
"""Starts hosts, starts them again when they end, and leaves those alone that somebody else has started."""

from __future__ import annotations

from serving_proxy.hosts.command import HostOptions
from serving_proxy.hosts.supervisor import Supervisor

__all__ = ["HostOptions", "Supervisor"]

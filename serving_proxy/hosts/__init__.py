# SPDX-License-Identifier: Apache-2.0
"""Start hosts, restart them when they end, and leave hosts alone that were not started by this proxy."""

from __future__ import annotations

from serving_proxy.hosts.command import LaunchOptions
from serving_proxy.hosts.supervisor import Supervisor

__all__ = ["LaunchOptions", "Supervisor"]

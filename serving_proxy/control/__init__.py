# SPDX-License-Identifier: Apache-2.0
"""The process that wires it all: verbs, jobs, the loop that follows hosts, and what it tells of itself."""

from __future__ import annotations

from serving_proxy.control.control import Control, ControlOptions

__all__ = ["Control", "ControlOptions"]

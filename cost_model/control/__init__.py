# SPDX-License-Identifier: Apache-2.0
"""Implement the controller: once per second it decides from observations which pool owns which cores."""

from cost_model.control.begin import begin
from cost_model.control.controller import follow, step
from cost_model.control.state import ControlledTenant, ControlState, Move, Observation, Pool, Settings

__all__ = ["ControlState", "ControlledTenant", "Move", "Observation", "Pool", "Settings", "begin", "follow", "step"]

# SPDX-License-Identifier: Apache-2.0
"""The controller: once a second, from what was observed, which pool owns which cores."""

from cost_model.control.begin import begin
from cost_model.control.controller import follow, step
from cost_model.control.state import ControlledTenant, ControlState, Move, Observation, Pool, Settings

__all__ = ["ControlState", "ControlledTenant", "Move", "Observation", "Pool", "Settings", "begin", "follow", "step"]

# SPDX-License-Identifier: Apache-2.0
"""The controller: once a second, from what was observed, which pool owns which cores."""

from cost_model.control.begin import begin
from cost_model.control.controller import follow, step
from cost_model.control.state import ControlState, Move, Observation, Pool, Settings, Subject

__all__ = ["ControlState", "Move", "Observation", "Pool", "Settings", "Subject", "begin", "follow", "step"]

# SPDX-License-Identifier: Apache-2.0
"""Fit traces of real runs: how much a machine under load adds to profiles, and how this is applied."""

from cost_model.calibration.calibration import Calibration, load_calibration
from cost_model.calibration.fit import calibrate
from cost_model.calibration.service import CalibratedService, Disturbance
from cost_model.calibration.trace import LEVELS, Run, Served, Times, Trace, load_trace

__all__ = [
    "LEVELS",
    "CalibratedService",
    "Calibration",
    "Disturbance",
    "Run",
    "Served",
    "Times",
    "Trace",
    "calibrate",
    "load_calibration",
    "load_trace",
]

# SPDX-License-Identifier: Apache-2.0
"""What a machine at work adds to profiles: traces of real runs, what is fitted to them, and how it is applied."""

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

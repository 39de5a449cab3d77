# SPDX-License-Identifier: Apache-2.0
"""Prove that the outputs of two models are equal for recorded and generated requests, run in TensorFlow."""

from graph_tools.verification.compare import OutputComparison, Tolerance
from graph_tools.verification.report import VerifyReport
from graph_tools.verification.request import Request
from graph_tools.verification.tables import compare_tables
from graph_tools.verification.verifying import SAMPLES, verify

__all__ = ["SAMPLES", "OutputComparison", "Request", "Tolerance", "VerifyReport", "compare_tables", "verify"]

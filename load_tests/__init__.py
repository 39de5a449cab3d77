# SPDX-License-Identifier: Apache-2.0
"""Whole-system measurements: speed against stock TensorFlow, memory, endurance, and the workloads they run on."""

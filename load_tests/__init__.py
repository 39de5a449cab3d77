# SPDX-License-Identifier: Apache-2.0
"""Measure the whole system: speed compared with stock TensorFlow, memory, endurance, and the reference workloads."""

# SPDX-License-Identifier: Apache-2.0
"""Decide which model gets which cores: profile, predict, plan, explain, control and simulate.

Everything except `cost_model.profiling` is a pure function of its arguments and needs only NumPy. Names end in their
units: `_us`, `_ms`, `_s`, `_qps`.
"""

# SPDX-License-Identifier: Apache-2.0
"""Which model gets which cores: profile, predict, plan, explain, control and simulate.

Everything but `cost_model.profiling` is a pure function of its arguments and needs NumPy alone. Units stand in names:
`_us`, `_ms`, `_s`, `_qps`.
"""

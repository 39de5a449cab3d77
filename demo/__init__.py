# SPDX-License-Identifier: Apache-2.0
"""The main job in one run: train a click model, optimize it, serve it, and compare with TensorFlow.

Run it with ``make demo``; docs/demo.md says what each part does and how to read the table.
"""

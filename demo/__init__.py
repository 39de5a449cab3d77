# SPDX-License-Identifier: Apache-2.0
"""Train a click model, optimize it, serve it, and compare it with TensorFlow, all in one run.

Run it with ``make demo``; docs/demo.md describes each part and explains the table.
"""

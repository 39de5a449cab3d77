# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of tables, of the model around them and of its stream, all of one instant."""

# SPDX-License-Identifier: Apache-2.0
"""Experiments: which version gets which buckets, and how weights change over time. Pure functions."""

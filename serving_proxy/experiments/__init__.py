# SPDX-License-Identifier: Apache-2.0
"""Experiments: who gets which buckets, and how weights move over time. Pure functions."""

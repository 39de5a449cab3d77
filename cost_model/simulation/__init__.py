# SPDX-License-Identifier: Apache-2.0
"""Simulate models that share a machine with discrete events: policies, capacity, interference."""

# SPDX-License-Identifier: Apache-2.0
"""Replicas of hosts that an engine such as Ray places: how many there are, and which of them go."""

# SPDX-License-Identifier: Apache-2.0
"""Judges versions by what hosts count of them: pure functions, from counters and limits to a verdict with numbers."""

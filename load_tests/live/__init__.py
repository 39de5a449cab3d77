# SPDX-License-Identifier: Apache-2.0
"""Measure live models while a writer publishes deltas and clients check every answer."""

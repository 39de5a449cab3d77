# SPDX-License-Identifier: Apache-2.0
"""Deltas: inspect and compact timelines, make segments from two exports, and apply them to an export."""

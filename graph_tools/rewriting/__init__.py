# SPDX-License-Identifier: Apache-2.0
"""Rewrite graphs: the protocol of passes, the matching of patterns, and the removal of unused nodes."""

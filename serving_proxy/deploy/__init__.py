# SPDX-License-Identifier: Apache-2.0
"""Deploys versions: what verbs do to a model, the gates, and the loop that follows hosts and writes `desired.json`."""

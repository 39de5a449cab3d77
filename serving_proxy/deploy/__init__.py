# SPDX-License-Identifier: Apache-2.0
"""Deployment of versions: changes to a model, the gates, and the loop that follows hosts and writes `desired.json`."""

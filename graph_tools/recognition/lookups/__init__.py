# SPDX-License-Identifier: Apache-2.0
"""Lookups of a graph, as an embedding group may take them: found, joined, and put into one node."""

# SPDX-License-Identifier: Apache-2.0
"""The command line of graph-tools, one module a verb."""

from graph_tools.cli.app import main

__all__ = ["main"]

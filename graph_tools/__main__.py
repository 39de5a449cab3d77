# SPDX-License-Identifier: Apache-2.0
"""Run `graph-tools` as `python -m graph_tools`."""

from graph_tools.cli import main

if __name__ == "__main__":
    main()

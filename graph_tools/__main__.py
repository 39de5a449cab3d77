# SPDX-License-Identifier: Apache-2.0
"""`python -m graph_tools` is the same as `graph-tools`."""

from graph_tools.cli import main

if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Run `python -m demo.online`."""

import sys

from demo.ending import run

if __name__ == "__main__":
    sys.exit(run("make demo-online", "demo.online.cli", "nothing is left running"))

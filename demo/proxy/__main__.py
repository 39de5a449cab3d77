# SPDX-License-Identifier: Apache-2.0
"""Run `python -m demo.proxy`."""

import sys

from demo.ending import run

if __name__ == "__main__":
    sys.exit(run("make demo-proxy", "demo.proxy.cli", "nothing is left running"))

# SPDX-License-Identifier: Apache-2.0
"""Run `python -m demo`."""

import sys

from demo.ending import run

if __name__ == "__main__":
    sys.exit(run("make demo", "demo.cli", "finished steps stay in the cache"))

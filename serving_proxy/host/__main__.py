# SPDX-License-Identifier: Apache-2.0
"""Run the host as `python -m serving_proxy.host`."""

import signal
import sys

from serving_proxy.system.listening import ENDING


def run() -> int:
    """Run the host; return its exit code."""
    # Signals wait for the server, which can end in order: if the process ended earlier, a version that is being loaded
    # would be blamed. They are blocked before numpy is imported, whose threads would take them otherwise.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    from serving_proxy.host.main import main

    return main()


if __name__ == "__main__":
    sys.exit(run())

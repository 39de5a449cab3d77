# SPDX-License-Identifier: Apache-2.0
"""Run `python -m demo.online`; all other imports are late, so that an interrupt ends the program quietly."""

import os
import signal
import sys


def _end(number: int, _: object) -> None:
    """Raise an exception, so that the proxy that was started is stopped."""
    sys.exit(128 + number)


def _main() -> int:
    # TensorFlow reads this variable when it is imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    try:
        from demo.online.cli import main

        return main()
    except KeyboardInterrupt:
        # As in demo/__main__.py: handles an interrupt in code compiled from a string.
        exec("")
        print("make demo-online: interrupted; nothing is left running", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(_main())

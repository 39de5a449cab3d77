# SPDX-License-Identifier: Apache-2.0
"""`python -m demo.proxy`; everything else is imported late, so that an interrupt ends it quietly at any moment."""

import os
import signal
import sys


def _end(number: int, _: object) -> None:
    """End as an exception does, so that the proxy that was started is stopped."""
    sys.exit(128 + number)


def _main() -> int:
    # TensorFlow reads it when it is imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    try:
        from demo.proxy.cli import main

        return main()
    except KeyboardInterrupt:
        # As in demo/__main__.py: takes away the mark of an interrupt within code from a string.
        exec("")
        print("make demo-proxy: interrupted; nothing is left running", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(_main())

# SPDX-License-Identifier: Apache-2.0
"""Run `python -m demo`; all other imports are late, so that an interrupt at any time ends the program quietly."""

import os
import sys


def _main() -> int:
    # TensorFlow reads this variable when it is imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        from demo.cli import main

        return main()
    except KeyboardInterrupt:
        # If the interrupt is raised in code compiled from a string (named tuples, data classes), `python -m` dies of
        # the signal although it was caught. Running other code from a string prevents that.
        exec("")
        print("make demo: interrupted; finished steps stay in the cache", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(_main())

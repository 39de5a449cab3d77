# SPDX-License-Identifier: Apache-2.0
"""`python -m demo`; everything else is imported late, so that an interrupt ends it quietly at any moment."""

import os
import sys


def _main() -> int:
    # TensorFlow reads it when it is imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        from demo.cli import main

        return main()
    except KeyboardInterrupt:
        # Raised in code from a string (named tuples, data classes), it leaves a mark by which `python -m` dies of the
        # signal although it was caught; other code from a string takes the mark away.
        exec("")
        print("make demo: interrupted; what was finished stays in the cache", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(_main())

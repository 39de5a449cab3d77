# SPDX-License-Identifier: Apache-2.0
"""End a demo quietly on a signal at any time, also while modules are imported."""

import importlib
import os
import signal
import sys


def run(program: str, module: str, left: str) -> int:
    """Run `main()` of a module, and return its exit code.

    On Ctrl-C, one line says that the program was interrupted and what is left of it, and the code is 130. On SIGTERM
    and SIGHUP an exception is raised, so that servers which were started are stopped.
    """
    # TensorFlow reads this variable when it is imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        from graph_tools.cli.signals import end_on_signals

        end_on_signals(signal.SIGHUP)
        code: int = importlib.import_module(module).main()
        return code
    except KeyboardInterrupt:
        pass
    except Exception:
        # TensorFlow turns an interrupt in a function that its C++ code calls into another error.
        if not _is_interrupted():
            raise
    # If the interrupt is raised in code compiled from a string (named tuples, data classes), `python -m` dies of the
    # signal although it was caught. Running other code from a string prevents that.
    exec("")
    print(f"{program}: interrupted; {left}", file=sys.stderr)
    return 128 + signal.SIGINT


def _is_interrupted() -> bool:
    from graph_tools.cli.signals import received

    return received() == signal.SIGINT

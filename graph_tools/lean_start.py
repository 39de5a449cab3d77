# SPDX-License-Identifier: Apache-2.0
"""Start TensorFlow without Keras, in processes that run nothing but graph-tools."""

from __future__ import annotations

import sys


def leave_out_keras() -> None:
    """Let TensorFlow start in three quarters of its time, if it is not loaded yet.

    TensorFlow imports Keras when it starts, and Keras imports matplotlib, if it is installed. Exported models need
    neither. Afterwards neither `keras` nor `tf_keras` can be imported in this process, unless it already was.
    """
    for name in ("keras", "tf_keras"):
        # Python's mark of a module that cannot be imported; TensorFlow then continues without.
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]

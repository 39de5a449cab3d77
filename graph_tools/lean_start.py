# SPDX-License-Identifier: Apache-2.0
"""Start TensorFlow without Keras, in processes that run nothing but graph-tools."""

from __future__ import annotations

import sys

_NAMES = ("keras", "tf_keras")


def leave_out_keras() -> None:
    """Let TensorFlow start in three quarters of its time, if it is not loaded yet.

    TensorFlow imports Keras when it starts, and Keras imports matplotlib, if it is installed. Most exported models
    need neither. Until `allow_keras` is called, neither `keras` nor `tf_keras` can be imported in this process, unless
    it already was.
    """
    for name in _NAMES:
        # Python's mark of a module that cannot be imported; TensorFlow then continues without.
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]


def allow_keras() -> None:
    """Let Keras be imported again; call it when TensorFlow has started.

    `tf.saved_model.load` imports Keras for a model that was saved with an optimizer of Keras 2, whose slot variables
    only Keras can make.
    """
    for name in _NAMES:
        if sys.modules.get(name, sys) is None:
            del sys.modules[name]

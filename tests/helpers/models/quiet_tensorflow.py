# SPDX-License-Identifier: Apache-2.0
"""Import TensorFlow without its log."""

from __future__ import annotations

import os
from typing import Any


def tensorflow() -> Any:
    """Import TensorFlow; it logs only errors unless the environment says otherwise."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    return tf

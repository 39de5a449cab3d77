# SPDX-License-Identifier: Apache-2.0
"""Write the weights of the SavedModel of W2 into a NumPy archive: tables, kernels and biases.

python export_weights.py SAVED_MODEL WEIGHTS.npz
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow as tf


def main(model: str, target: str) -> None:
    """Read the variables by their position in the module."""
    reader = tf.train.load_checkpoint(os.path.join(model, "variables", "variables"))
    places = {"tables": 26, "kernels": 4, "biases": 4}
    arrays = {
        f"{place}_{i}": reader.get_tensor(f"{place}/{i}/.ATTRIBUTES/VARIABLE_VALUE")
        for place, count in places.items()
        for i in range(count)
    }
    np.savez(target, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])

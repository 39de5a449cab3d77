# SPDX-License-Identifier: Apache-2.0
"""Where models come from beside `deploy`: base directories, TensorFlow Serving's and DeepRec's configuration files."""

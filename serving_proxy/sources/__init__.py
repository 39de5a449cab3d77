# SPDX-License-Identifier: Apache-2.0
"""Sources of models other than `deploy`: base directories, and the configuration files of TensorFlow Serving and
DeepRec.
"""

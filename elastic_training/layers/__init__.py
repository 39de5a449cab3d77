# SPDX-License-Identifier: Apache-2.0
"""Layers for Keras 3, for tf-keras and for plain TensorFlow, whose rows are in tables."""

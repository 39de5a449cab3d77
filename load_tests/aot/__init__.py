# SPDX-License-Identifier: Apache-2.0
"""Compile models ahead of time with TensorFlow's own tool, for comparison."""

# SPDX-License-Identifier: Apache-2.0
"""Models compiled ahead of time by TensorFlow's own tool, to compare with."""

# SPDX-License-Identifier: Apache-2.0
"""The control plane as a whole: connects its parts, and makes the views of all of them."""

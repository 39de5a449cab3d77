# SPDX-License-Identifier: Apache-2.0
"""What a model has to pass before a host may load it."""

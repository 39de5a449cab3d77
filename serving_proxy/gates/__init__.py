# SPDX-License-Identifier: Apache-2.0
"""The checks that a model must pass before a host may load it."""

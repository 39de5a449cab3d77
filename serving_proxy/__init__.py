# SPDX-License-Identifier: Apache-2.0
"""Deploy, split, watch and roll back models on one machine."""

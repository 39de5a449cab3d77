# SPDX-License-Identifier: Apache-2.0
"""From training to serving: SavedModels, and deltas of what is learned after them."""

from elastic_training.export.publisher import Publisher
from elastic_training.export.saved_model import export

__all__ = ["Publisher", "export"]

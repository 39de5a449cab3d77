# SPDX-License-Identifier: Apache-2.0
"""A model as the passes see it, as plain data."""

from graph_tools.model.model import Endpoint, HashTableContent, Model, Signature, disk_bytes

__all__ = ["Endpoint", "HashTableContent", "Model", "Signature", "disk_bytes"]

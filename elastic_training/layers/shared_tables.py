# SPDX-License-Identifier: Apache-2.0
"""Tables that several layers share, in the configuration of a Keras model.

Keras restores shared objects by an id in their configuration, if it loads all layers at once.
"""

from __future__ import annotations

import secrets
import weakref
from typing import Any

from elastic_training.config import TableConfig
from elastic_training.table import Table

_ids: weakref.WeakKeyDictionary[Table, int] = weakref.WeakKeyDictionary()
_users: weakref.WeakKeyDictionary[Table, weakref.WeakSet[Any]] = weakref.WeakKeyDictionary()
# Its class is what Keras calls; a registered name finds it without the module of a layer.
CLASS_NAME = "SharedTable"
PACKAGE = "elastic_training"


class SharedTable:
    """What Keras makes a Table with; no object of this class exists."""

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Table:
        return Table(TableConfig.from_config(config))

    def get_config(self) -> dict[str, Any]:
        """Return nothing: Keras registers only classes with this method."""
        return {}


def note_user(table: Table, layer: Any) -> None:
    """Note that a layer uses a table that it was given."""
    _users.setdefault(table, weakref.WeakSet()).add(layer)


def to_config(table: Table) -> dict[str, Any]:
    """Return the form in which Keras stores an object, with an id that all layers with this table write."""
    return {
        "module": None,
        "class_name": CLASS_NAME,
        "config": table.settings.to_config(),
        "registered_name": f"{PACKAGE}>{CLASS_NAME}",
        "shared_object_id": _ids.setdefault(table, secrets.randbits(48)),
        "layers": len(_users.get(table, ())),
    }


def from_config(owner: str, saving: Any, config: Any) -> Any:
    """Return the table of a configuration; a table's name as it is.

    Parameters
    ----------
    owner : str
        What messages call the layer.
    saving : module
        keras.saving or tf_keras.saving.

    Raises
    ------
    ValueError
        If several layers share the table and Keras does not load them together, as in clone_model: each would get a
        table of its own.
    """
    if not isinstance(config, dict):
        return config
    stored = {name: value for name, value in config.items() if name != "layers"}
    table = saving.deserialize_keras_object(stored)
    if config["layers"] > 1 and saving.deserialize_keras_object(stored) is not table:
        what = f"table {table.name!r} is shared by {config['layers']} layers"
        raise ValueError(f"{owner}: {what}, expected all of them to be loaded at once (keras.saving.load_model)")
    return table

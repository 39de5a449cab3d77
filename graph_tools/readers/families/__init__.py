# SPDX-License-Identifier: Apache-2.0
"""List the training systems whose exports can be read, one module each; add new systems to this list."""

from __future__ import annotations

from graph_tools.readers.families.base import Family
from graph_tools.readers.families.deeprec import DeepRec
from graph_tools.readers.families.hps import HugeCtrHps
from graph_tools.readers.families.monolith import Monolith
from graph_tools.readers.families.native import NativeTables
from graph_tools.readers.families.tensornet import TensorNet
from graph_tools.readers.families.tfplus import TFPlus
from graph_tools.readers.families.tfra import Tfra

FAMILIES: list[Family] = [DeepRec(), TFPlus(), Tfra(), Monolith(), TensorNet(), HugeCtrHps(), NativeTables()]

__all__ = ["FAMILIES", "Family"]

# SPDX-License-Identifier: Apache-2.0
"""Define the report of `inspect`: the contents of an exported model, and which of them serving needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from graph_tools.json_data import Count, JsonSchema, Positive, Report, reported
from graph_tools.model.table_record import UnusedTensor
from graph_tools.report.table_files import IndexKind
from graph_tools.store.row_runs import NarrowRows

AbsentAnswer = Annotated[str, JsonSchema(enum=["zero", "row", "modulo", "error", "default"])]


@dataclass
class TensorInfo:
    """An input or output of a signature.

    Attributes
    ----------
    name : str
        Its key.
    tensor : str
        Its name in the graph.
    shape : list of int or None, or None
        A size of None: any size; None instead of the list: any rank.
    """

    name: str
    tensor: str
    dtype: str
    shape: list[int | None] | None


@dataclass
class SignatureInfo:
    """A signature, its inputs and its outputs."""

    name: str
    method: str
    inputs: list[TensorInfo]
    outputs: list[TensorInfo]


@dataclass
class VariableInfo:
    """A variable.

    Attributes
    ----------
    name : str
        Name of its handle node.
    used : bool
        True if an output of a signature needs it.
    duplicate_of : str or None
        Another variable with the same content, which the checkpoint contains twice.
    checksums : list of int
        Checksums of its tensors in the checkpoint.
    """

    name: str
    dtype: str
    shape: list[Count]
    bytes: Count
    used: bool
    duplicate_of: str | None = None
    checksums: list[Count] = field(default_factory=list)


@dataclass
class TableInfo:
    """A table in which keys are looked up.

    Attributes
    ----------
    family : str
        The training system that made it; `tensorflow` for native hash tables, `asset` for tables filled from a file or
        a constant, `recprocessor` for embedding tables in files of their own.
    rows : int or None
        Number of keys; None: not known without the file.
    dim : int or None
        Length of a row; None: values are single numbers.
    dtype : str
        Dtype of the values.
    bytes : int
        Bytes of keys and values.
    absent : str
        Value of an absent key; `default`: the graph sets it at each lookup.
    index : str or None
        How rows are found in an embedding table's file; None: no such file.
    file : str or None
        Name of an embedding table's file in the assets.
    narrow : list of NarrowRows
        Rows of the file that have fewer elements: from row `first` on, only the first `dim` ones.
    """

    name: str
    family: str
    rows: int | None
    dim: int | None
    dtype: str
    bytes: Count
    absent: AbsentAnswer
    used: bool
    index: IndexKind | None = None
    file: str | None = None
    narrow: list[NarrowRows] = field(default_factory=list)


@dataclass
class AssetInfo:
    """A file of the assets."""

    name: str
    bytes: Count


@dataclass
class Inspection:
    """The contents of a model.

    Attributes
    ----------
    bytes : int
        Size on disk.
    nodes : int
        Nodes of the graph with its calls inlined.
    needed_nodes : int
        Nodes that an output of a signature needs.
    ops : dict of str to int
        Nodes by op, as exported: in the graph and in functions.
    custom_ops : list of str
        Ops that TensorFlow does not have.
    families : list of str
        Training systems whose tables were found.
    unused_tensors : list of UnusedTensor
        Tensors of the checkpoint that no signature needs.
    """

    path: str
    kind: str
    tags: list[str]
    bytes: Count
    signatures: list[SignatureInfo]
    nodes: Count
    needed_nodes: Count
    functions: Count
    ops: dict[str, Positive]
    custom_ops: list[str]
    families: list[str]
    variables: list[VariableInfo]
    tables: list[TableInfo]
    assets: list[AssetInfo]
    unused_tensors: list[UnusedTensor]

    @property
    @reported
    def needless_bytes(self) -> Count:
        """Bytes of tensors that serving does not need: unused tensors and duplicates."""
        copies = [variable for variable in self.variables if variable.used and variable.duplicate_of is not None]
        return sum(variable.bytes for variable in copies) + sum(tensor.bytes for tensor in self.unused_tensors)


@dataclass
class InspectReport(Report):
    """The report of `graph-tools inspect`: models side by side."""

    SCHEMA = "inspect_report/1"

    models: list[Inspection]

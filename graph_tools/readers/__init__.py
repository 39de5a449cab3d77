# SPDX-License-Identifier: Apache-2.0
"""Read the files of an export, from any system, into a `Model`."""

from __future__ import annotations

from pathlib import Path

from graph_tools.errors import UnreadableError, naming
from graph_tools.model import Model
from graph_tools.readers.families import FAMILIES
from graph_tools.readers.graph_def import is_graph_def, read_graph_def
from graph_tools.readers.monolith_layout import find_entry
from graph_tools.readers.saved_model import is_saved_model, read_saved_model
from graph_tools.tables.absent_keys import apply_absent_keys, check_absent_keys


def read_model(
    path: str | Path,
    *,
    signatures: tuple[str, ...] = (),
    outputs: tuple[str, ...] = (),
    checkpoint: str | Path | None = None,
    tags: tuple[str, ...] = (),
    absent_key: dict[str, str] | None = None,
) -> Model:
    """Read a SavedModel or a frozen GraphDef, and convert its custom sparse ops to the common form.

    Parameters
    ----------
    path : path
        Folder of a SavedModel, or a `.pb` or `.pbtxt` file with a GraphDef; or the folder of a distributed Monolith
        export with `entry` and `ps_0`, `ps_1`, ….
    signatures : tuple of str
        Signatures to keep; all of them if empty.
    outputs : tuple of str
        Outputs to keep: keys of a signature's outputs, or tensor names; all of them if empty.
    checkpoint : path, optional
        Prefix of a checkpoint with the weights, or the folder with the table files of a training system.
    tags : tuple of str
        Tags of the MetaGraph; if empty: `serve`.
    absent_key : dict of str to str, optional
        By table, or pattern of tables: the value of an absent key, instead of that of the training system: `zero`,
        `row:K` (the row of the key K) or `default` (the system's own value, which then also applies to lookups of
        training).

    Raises
    ------
    UnreadableError, UsageError, ConversionError
    """
    absent = dict(absent_key or {})
    check_absent_keys(absent)
    with naming(path, *([] if checkpoint is None else [checkpoint])):
        return _read(Path(path), signatures, outputs, checkpoint, tags, absent)


def _read(
    path: Path,
    signatures: tuple[str, ...],
    outputs: tuple[str, ...],
    checkpoint: str | Path | None,
    tags: tuple[str, ...],
    absent: dict[str, str],
) -> Model:
    path = find_entry(path)
    folder = Path(checkpoint) if checkpoint is not None and Path(checkpoint).is_dir() else None
    prefix = Path(checkpoint) if checkpoint is not None and folder is None else None
    if is_saved_model(path):
        model = read_saved_model(path, tags=tags, checkpoint=prefix, signatures=signatures)
        if outputs:
            keep_outputs(model, outputs)
    elif is_graph_def(path):
        model = read_graph_def(path, outputs)
    elif not path.exists():
        raise UnreadableError(f"{path}: does not exist, expected a SavedModel or a GraphDef file")
    else:
        raise UnreadableError(
            f"{path}: no saved_model.pb in it, expected the folder of a SavedModel or a GraphDef file{_inside(path)}"
        )
    for family in FAMILIES:
        if family.matches(model):
            family.normalize(model, folder, absent)
    apply_absent_keys(model, absent)
    return model


def _inside(path: Path) -> str:
    """Return a text with the newest version in a folder of versions, as servers have them, or ""."""
    if not path.is_dir():
        return ""
    versions = sorted(
        (folder for folder in path.iterdir() if folder.name.isdigit() and is_saved_model(folder)), key=_number
    )
    others = f", the newest of {len(versions)} versions" if len(versions) > 1 else ""
    return f": {versions[-1]} is a SavedModel{others}" if versions else ""


def _number(path: Path) -> int:
    return int(path.name)


def keep_outputs(model: Model, wanted: tuple[str, ...]) -> None:
    """Keep the outputs with these keys or tensor names in every signature; remove signatures without any.

    Raises
    ------
    UsageError
        A name is not an output of any signature.
    """
    from graph_tools.errors import UsageError

    missing = set(wanted)
    known = sorted({key for signature in model.signatures.values() for key in signature.outputs})
    for name, signature in list(model.signatures.items()):
        kept = {}
        for key, output in signature.outputs.items():
            names = {key, str(output.tensor), *([output.tensor.node] if output.tensor.port == 0 else [])}
            if names & set(wanted):
                kept[key] = output
                missing -= names
        signature.outputs = kept
        if not kept:
            del model.signatures[name]
            model.removed_signatures[name] = "none of its outputs is among those to keep"
    if missing:
        shown = ", ".join(known)
        raise UsageError(f"{model.path}: output '{sorted(missing)[0]}' is in no signature, expected one of: {shown}")


__all__ = ["keep_outputs", "read_model"]

# SPDX-License-Identifier: Apache-2.0
"""Share tables in a folder that artifacts link to, so that equal tables use disk and page cache only once.

The page cache belongs to inodes: two models that hard-link one file share its pages in all processes. Files have mode
0444, appear by renaming when they are complete, and are never written again. Any number of processes may therefore use
a store at the same time. Files are never removed from a store here: a file whose link count is 1 is no longer in any
artifact.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import time
from dataclasses import replace
from pathlib import Path

from graph_tools.errors import ConversionError, UnreadableError, UsageError
from graph_tools.store.layout import Header
from graph_tools.store.reader import read_header
from graph_tools.store.spec import TableSpec
from graph_tools.store.table_file import (
    MEMORY_LIMIT,
    SUFFIX,
    Progress,
    TableFile,
    file_digest,
    sync_folder,
    temporary_name,
    write_temporary,
)

# A temporary file that was not written for this long was left behind by a killed process.
_ABANDONED_SECONDS = 86_400
_NO_LINK = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS}


class TableStore:
    """A folder of tables that are named after their content.

    Parameters
    ----------
    folder : Path
        It is created if needed.
    verify : bool
        Read an existing file completely before it is used again, instead of only its header and size.

    Raises
    ------
    UsageError
        The folder cannot be created.
    """

    def __init__(self, folder: Path, verify: bool = False) -> None:
        self.folder, self._verify = Path(folder), verify
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{self.folder}: {error.strerror}, expected a folder for tables") from error
        self._remove_abandoned()

    def _remove_abandoned(self) -> None:
        for path in self.folder.glob(temporary_name("*", "*")):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                    path.unlink()

    def path(self, sha256: str) -> Path:
        """Return the path of a table with this digest, whether it exists or not."""
        return self.folder / f"{sha256}{SUFFIX}"

    def put(self, spec: TableSpec, *, memory_limit: int = MEMORY_LIMIT, progress: Progress | None = None) -> TableFile:
        """Write a table unless it exists; a damaged file of its name is replaced, with a note.

        Raises
        ------
        ConversionError
            As for `write_table`.
        """
        temporary, header, sha256 = write_temporary(self.folder, spec, memory_limit, progress)
        return self._adopt(temporary, header, sha256)

    def _adopt(self, temporary: Path, header: Header, sha256: str) -> TableFile:
        final = self.path(sha256)
        notes: tuple[str, ...] = ()
        try:
            if final.exists():
                problem = find_damage(final, header, sha256 if self._verify else None)
                if problem is None:
                    temporary.unlink()
                    return TableFile(final, sha256, header)
                notes = (f"{problem}; it was replaced, and models that link to the damaged file have to be made again",)
            temporary.rename(final)
            sync_folder(self.folder)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise ConversionError(f"{final}: {error.strerror}, expected a store that may be written to") from error
        return TableFile(final, sha256, header, notes)

    def adopt(self, file: Path) -> TableFile:
        """Add a file that is named after its content to the store, if its content matches the name.

        Raises
        ------
        UnreadableError
            It is not a table, or its content does not match its name.
        """
        header = read_checked_header(file)
        final = self.path(file.stem)
        if final.exists() and find_damage(final, header, file.stem if self._verify else None) is None:
            return TableFile(final, file.stem, header)
        temporary = self.folder / temporary_name(str(os.getpid()), secrets.token_hex(8))
        copied = _link_or_copy(file, temporary)
        placed = self._adopt(temporary, header, file.stem)
        return replace(placed, notes=(*placed.notes, *copied))


def place_file(file: TableFile, folder: Path) -> TableFile:
    """Put a table of a store into a folder under its name, as a link, or else as a copy with a note.

    Raises
    ------
    ConversionError
        There is no room for it.
    """
    target = folder / file.name
    if target.exists():
        return replace(file, path=target)
    try:
        notes = _link_or_copy(file.path, target)
    except OSError as error:
        raise ConversionError(f"{target}: {error.strerror}, expected room and permission to write it") from error
    return replace(file, path=target, notes=(*file.notes, *notes))


def place_table(
    spec: TableSpec,
    folder: Path,
    store: TableStore | None,
    *,
    memory_limit: int = MEMORY_LIMIT,
    progress: Progress | None = None,
) -> TableFile:
    """Write a table into a folder, through a store if there is one; a table with a file is not written again.

    Raises
    ------
    ConversionError, UnreadableError
        As for `write_table`, and if the file of `spec` is damaged.
    """
    if spec.file is not None:
        if store is not None:
            return place_file(store.adopt(spec.file), folder)
        return place_file(TableFile(spec.file, spec.file.stem, read_checked_header(spec.file)), folder)
    if store is not None:
        return place_file(store.put(spec, memory_limit=memory_limit, progress=progress), folder)
    temporary, header, sha256 = write_temporary(folder, spec, memory_limit, progress)
    target = folder / f"{sha256}{SUFFIX}"
    temporary.rename(target)
    return TableFile(target, sha256, header)


def read_checked_header(file: Path) -> Header:
    """Read a file completely and return its header.

    Raises
    ------
    UnreadableError
        It is not a table, or not the one that its name says.
    """
    header = read_header(file)
    problem = find_damage(file, header, file.stem)
    if problem is not None:
        raise UnreadableError(problem)
    return header


def find_damage(file: Path, header: Header, sha256: str | None) -> str | None:
    """Return how a file differs from a table with this header and, unless None, this digest; None if it does not."""
    try:
        if read_header(file) != header:
            return f"{file}: another table than its name says, expected the same header"
        found = file_digest(file) if sha256 is not None else None
    except UnreadableError as error:
        return str(error)
    except OSError as error:
        return f"{file}: {error.strerror}, expected an embedding table"
    if found != sha256:
        return f"{file}: SHA-256 {found}, expected that of its name; the file is damaged"
    return None


def _link_or_copy(source: Path, target: Path) -> tuple[str, ...]:
    """Link `target` to a file, or copy the file; return notes."""
    try:
        os.link(source, target)
        return ()
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        reason = error.strerror
    temporary = target.with_name(temporary_name(str(os.getpid()), secrets.token_hex(8)))
    try:
        shutil.copyfile(source, temporary)
        temporary.chmod(0o444)
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        temporary.rename(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return (f"{target.name}: copied, since it cannot be linked ({reason}); its memory is not shared with the store",)

# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a model with elastic tables, written while training goes on."""

from __future__ import annotations

import re
import secrets
import shutil
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from elastic_training import _library
from elastic_training.checkpoints import dense
from elastic_training.checkpoints.cut import MEMORY_BYTES, Cut, Restoring
from elastic_training.checkpoints.files import Reader, Writer, sync_folder, write_table
from elastic_training.checkpoints.step_gate import StepGate
from elastic_training.checkpoints.tables import Place, match, places_of
from elastic_training.table import Table

# In a checkpoint that leaves rows on SSD, the token by which tables know it.
_TOKEN = "token"
_NAME = re.compile(r"checkpoint-(\d{8})")


class Checkpoints:
    """The checkpoints of a model in a directory.

    A checkpoint has the state at one instant between training steps: weights, slots and counters of the tables, their
    admission filters, the variables of models and optimizers, and the offsets of streams (`StreamOffsets`). Training
    goes on while it is written. It appears in the directory when it is complete; a failed one leaves all others.

    Parameters
    ----------
    directory : path
        Written by one process at a time.
    objects : models, layers, optimizers, modules, variables and tables by name
        A compiled Keras model brings its optimizer.
    keep : int
        How many checkpoints to keep, besides those that they build on: up to `full_every` more.
    full_every : int
        Every so many checkpoints all rows are written, between them only those that changed; 1: always all.
    memory_bytes : int
        Training waits while it has changed so many bytes of rows that were not written yet.
    copy_ssd : bool
        False leaves the rows of tables with `et.Tiers` that are on SSD there, so that checkpoints and restarts of large
        tables take less time. Such a checkpoint needs these folders, and keeps files in them that are reclaimed else.

    Examples
    --------
    >>> checkpoints = et.Checkpoints("checkpoints", model=model)
    >>> checkpoints.restore()
    >>> model.fit(stream, callbacks=[checkpoints.callback(every_s=60)])

    In a training loop, `save(wait=False)` between two steps; with several training threads each runs its steps in
    `with checkpoints.step():`.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        keep: int = 3,
        full_every: int = 10,
        memory_bytes: int = MEMORY_BYTES,
        copy_ssd: bool = True,
        **objects: Any,
    ) -> None:
        for name, value in (("keep", keep), ("full_every", full_every), ("memory_bytes", memory_bytes)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"Checkpoints: {name} is {value!r}, expected an integer of at least 1")
        if not objects:
            raise ValueError(
                "Checkpoints: nothing to save, expected at least one object: Checkpoints(path, model=model)"
            )
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._given = objects
        self._keep = keep
        self._full_every = full_every
        self._memory_bytes = memory_bytes
        self._copy_ssd = copy_ssd
        self._gate = StepGate()
        self._saving = threading.Lock()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        # The token of the last cut, the checkpoint that has it, and how many have been written since a full one.
        self._token, self._base, self._since_full = 0, "", 0

    def _objects(self) -> dict[str, Any]:
        return {name: part for given, item in self._given.items() for name, part in dense.parts_of(given, item).items()}

    def tables(self) -> list[Table]:
        """Return the tables of all objects."""
        return [place.table for place in self._places()]

    def _places(self) -> list[Place]:
        return places_of(self._given)

    def step(self) -> AbstractContextManager[None]:
        """Run a training step in the block that this returns; needed if several threads train."""
        return self._gate.step()

    def names(self) -> list[str]:
        """Return the names of the complete checkpoints, the oldest first."""
        return sorted(path.name for path in self.directory.iterdir() if _NAME.fullmatch(path.name))

    def latest(self) -> Path | None:
        """Return the path of the newest checkpoint."""
        names = self.names()
        return self.directory / names[-1] if names else None

    def save(self, *, wait: bool = True) -> Path:
        """Take a cut now, between two steps, and write it.

        Parameters
        ----------
        wait : bool
            False writes in another thread. A failure is then raised by the next `save` or `wait`.

        Returns
        -------
        Path of the checkpoint

        Raises
        ------
        OSError
            The disk is full, or the directory cannot be written. Earlier checkpoints are as they were, and the
            next one has all rows.
        """
        with self._saving:
            self.wait()
            for stale in self.directory.glob("checkpoint-*.tmp"):
                self._forget(stale)
                shutil.rmtree(stale)
            names = self.names()
            number = int(_NAME.fullmatch(names[-1])[1]) + 1 if names else 1  # type: ignore[index]
            base = self._token if self._since_full + 1 < self._full_every and self._base in names else 0
            token = secrets.randbits(62) + 1
            with self._gate.stopped():
                values = dense.capture(self._objects())
                places = self._places()
                on_ssd = not self._copy_ssd
                cut = Cut([place.table for place in places], base, token, self._memory_bytes, on_ssd)
            self._token = 0
            path = self.directory / f"checkpoint-{number:08}"
            if wait:
                self._write(path, cut, places, values, token)
            else:
                self._thread = threading.Thread(target=self._write_beside, args=(path, cut, places, values, token))
                self._thread.start()
            return path

    def writing(self) -> bool:
        """Return whether a checkpoint is being written now."""
        return self._thread is not None and self._thread.is_alive()

    def wait(self) -> None:
        """Wait until the checkpoint that is being written is complete; raise its error."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _write_beside(self, *arguments: Any) -> None:
        try:
            self._write(*arguments)
        except BaseException as error:  # raised again by wait()
            self._error = error

    def _write(self, path: Path, cut: Cut, places: Sequence[Place], values: Mapping[str, Any], token: int) -> None:
        folder = path.with_name(path.name + ".tmp")
        writer = None
        try:
            writer = Writer(folder)
            left = 0 if self._copy_ssd else token
            if left:
                # If this process is killed between the promise and the manifest, the next one has it forgotten.
                writer.append(_TOKEN, str(token).encode())
                writer.close_files()
            tables = {
                place.table.name: {**write_table(writer, cut, i, left), **place.describe()}
                for i, place in enumerate(places)
            }
            manifest = {"base": self._base if cut.changes_only else None, "tables": tables}
            writer.finish({**manifest, "dense": dense.write(writer, values)})
            folder.rename(path)
            sync_folder(self.directory)
        except BaseException:
            cut.end(succeeded=False)
            if writer is not None:
                writer.abandon()
            shutil.rmtree(folder, ignore_errors=True)
            raise
        cut.end(succeeded=True)
        self._token, self._since_full = token, self._since_full + 1 if cut.changes_only else 0
        self._base = path.name
        self._remove_old()

    def _remove_old(self) -> None:
        names = self.names()
        needed: set[str] = set()
        for name in names[-self._keep :]:
            needed.update(reader.folder.name for reader in self._chain(self.directory / name))
        for name in names:
            if name not in needed:
                self._forget(self.directory / name)
                shutil.rmtree(self.directory / name)

    def _forget(self, path: Path) -> None:
        """Tell tables that a checkpoint is gone, which may have left rows on SSD."""
        if (path / _TOKEN).exists() and (text := (path / _TOKEN).read_bytes()):
            for place in self._places():
                _library.ops().elastic_table_forget(place.table.handle, int(text))

    @staticmethod
    def _chain(path: Path) -> list[Reader]:
        """Return a checkpoint with all rows, and those that add to it, up to `path`."""
        chain: list[Reader] = [Reader(path)]
        while (base := chain[-1].manifest["base"]) is not None:
            chain.append(Reader(path.with_name(base)))
        return chain[::-1]

    def restore(self, path: str | Path | None = None) -> Path | None:
        """Take over a checkpoint; what tables had before is gone.

        Tables are found by the names that were chosen for them or their layers; those of layers that Keras named, by
        their place in the model. Everything is checked before anything changes. A table whose admission filter is
        another one than that saved keeps its rows, and counts anew.

        Parameters
        ----------
        path : path or None
            None: the newest checkpoint of the directory.

        Returns
        -------
        Path of the checkpoint, or None if there is none

        Raises
        ------
        ValueError
            A file is torn, or a table or variable is another one; the message names it.
        """
        with self._saving:
            self.wait()
            chosen = self.latest() if path is None else Path(path)
            if chosen is None:
                return None
            chain = self._chain(chosen)
            for reader in chain:
                reader.verify()
            manifest, source, objects = chain[-1].manifest, str(chosen), self._objects()
            tables = match(self._places(), manifest["tables"], source)
            dense.prepare(objects, manifest["dense"], source)
            for name, description in manifest["tables"].items():
                state = chain[-1].bytes_of(f"{description['folder']}/filter.bin")
                restoring = Restoring(tables[name], description, state)
                left = [left for reader in chain if (left := reader.manifest["tables"][name].get("ssd"))]
                if left:
                    restoring.resume(left[-1]["run"], [one["token"] for one in left])
                for reader in chain:
                    table = reader.manifest["tables"][name]
                    restoring.evict(reader.evicted(table))
                    for rows in reader.rows(table):
                        restoring.insert(rows)
                restoring.end()
            dense.restore(objects, manifest["dense"], chain[-1])
            self._token, self._base, self._since_full = 0, "", 0
            return chosen

    def callback(self, *, every_steps: int | None = None, every_s: float | None = None) -> Any:
        """Return a callback of Keras 3 that saves between batches of `fit`, and at its end.

        That of tf-keras is `et.tf_keras.SaveCheckpoints(checkpoints, every_s=60)`.

        Parameters
        ----------
        every_steps : int or None
        every_s : float or None
            Seconds from one checkpoint to the next.
        """
        from elastic_training.checkpoints.callback import SaveCheckpoints

        return SaveCheckpoints(self, every_steps, every_s)

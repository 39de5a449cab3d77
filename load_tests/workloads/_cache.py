# SPDX-License-Identifier: Apache-2.0
"""Export the reference models, each once."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("PROCESSOR_WORKLOADS", ROOT / ".cache" / "workloads"))

# float32 matrices of 429-1024-512-256-1
TOWER = 4 * (429 * 1024 + 1024 * 512 + 512 * 256 + 256)


@dataclass(frozen=True)
class Workload:
    """Describe a reference model.

    Parameters
    ----------
    name : str
        Short name in the results, for example "W1".
    folder : str
        Folder of the SavedModel in the cache.
    generator : str
        File in this package that exports it.
    title : str
        Short description.
    weights : int
        Bytes of the matrices that every request reads completely.
    """

    name: str
    folder: str
    generator: str
    title: str
    weights: int


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("W1", "wdl", "make_wdl.py", "Wide & Deep, string features, about 4,700 nodes", TOWER),
        Workload("W2", "idwdl", "make_idwdl.py", "the same tower on integer ids, a small clean graph", TOWER),
        Workload("bags", "bags", "make_bags.py", "20 bags of words through safe_embedding_lookup_sparse", 0),
        Workload("keras", "keras", "make_keras.py", "a Keras 3 ranking model, exported in both of its ways", 0),
        Workload("tiny", "tiny", "make_tiny.py", "two small layers, for tests and endurance", 4 * (8 * 16 + 16)),
    )
}


def ensure_model(name: str, cache: Path = CACHE) -> Path:
    """Return the folder of a reference model; export it if the cache does not contain it.

    Parameters
    ----------
    name : str
        "W1", "W2" or "tiny".
    cache : Path
        Folder for the models.

    Returns
    -------
    folder : Path
        A SavedModel.

    Raises
    ------
    KeyError
        If there is no such workload.
    subprocess.CalledProcessError
        If the generator failed; its messages are on stderr.
    """
    workload = WORKLOADS[name]
    folder = cache / workload.folder
    if any(folder.rglob("saved_model.pb")):
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    # One process exports the model; other processes wait.
    with (cache / f".{workload.folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not any(folder.rglob("saved_model.pb")):
            _export(workload, folder)
    return folder


def _export(workload: Workload, folder: Path) -> None:
    # Its output goes to stderr, even if Python's own stderr is a buffer.
    # Written to a temporary folder and renamed, so that an interrupted run leaves no incomplete model in the cache.
    scratch = Path(tempfile.mkdtemp(prefix=f".{workload.folder}-", dir=folder.parent))
    try:
        generator = Path(__file__).with_name(workload.generator)
        subprocess.run([sys.executable, str(generator), str(scratch / "model")], check=True, stdout=2)
        shutil.rmtree(folder, ignore_errors=True)
        (scratch / "model").rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)

# SPDX-License-Identifier: Apache-2.0
"""Export the reference models, each once."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from load_tests.workloads._wheels import unpacked_wheel

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
    with _locked(cache, workload.folder):
        if not any(folder.rglob("saved_model.pb")):
            with _scratch(folder) as scratch:
                _generate(workload.generator, scratch / "model")
                shutil.rmtree(folder, ignore_errors=True)
                (scratch / "model").rename(folder)
    return folder


def ensure_deepctr_models(names: Sequence[str], cache: Path = CACHE) -> Path:
    """Return the folder of models that DeepCTR and Keras 2 trained briefly; export those that the cache lacks.

    Parameters
    ----------
    names : sequence of str
        Keys of `MODELS` in `make_deepctr.py`; each model is in a folder of its name.
    cache : Path
        Folder for the models.

    Raises
    ------
    subprocess.CalledProcessError
        If the generator failed; its messages are on stderr.
    RuntimeError
        If pip cannot download the package.
    """
    folder = cache / "deepctr"
    with _locked(cache, folder.name):
        folder.mkdir(exist_ok=True)
        missing = [name for name in names if not (folder / name / "saved_model.pb").is_file()]
        if missing:
            with _scratch(folder) as scratch:
                _generate("make_deepctr.py", unpacked_wheel("deepctr", "0.9.4", cache), scratch, *missing)
                for name in missing:
                    (scratch / name).rename(folder / name)
    return folder


@contextlib.contextmanager
def _locked(cache: Path, name: str) -> Iterator[None]:
    """Let one process export a model while other processes wait."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """Make a temporary folder next to `folder`: an interrupted run leaves no incomplete model in the cache."""
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _generate(generator: str, *arguments: str | Path) -> None:
    """Run a file of this package; its output goes to stderr, even if Python's own stderr is a buffer."""
    command = [sys.executable, str(Path(__file__).with_name(generator)), *map(str, arguments)]
    subprocess.run(command, check=True, stdout=2, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})

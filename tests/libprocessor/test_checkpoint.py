# SPDX-License-Identifier: Apache-2.0
"""A model that follows a checkpoint folder: what is picked up, what is refused, and what requests see of it."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import processor
from helpers.hosts.abi_model import AbiModel
from helpers.models.checkpoint_trainer import CheckpointTrainer, files_of, link_checkpoint, score
from helpers.models.quiet_tensorflow import tensorflow
from helpers.system.process_state import num_fds, num_threads, resident_mb
from helpers.system.waiting import wait_until

X = np.array([[1.0, 2.0, 3.0], [4.0, 0.0, 1.0]], np.float32)


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CheckpointTrainer]:
    """The trainer of a small model."""
    trainer = CheckpointTrainer(tmp_path_factory.mktemp("trainer"))
    yield trainer
    trainer.close()


@pytest.fixture(scope="module")
def prefixes(trainer: CheckpointTrainer, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Checkpoints of steps 100 to 400, outside the folders that models follow."""
    folder = tmp_path_factory.mktemp("written")
    return {step: trainer.save(folder, step) for step in (100, 200, 300, 400)}


def config(folder: Path, **more: object) -> dict[str, object]:
    return {"checkpoint_dir": str(folder), "checkpoint_poll_seconds": 0.05, "intra_op_parallelism_threads": 1, **more}


def test_a_later_step_is_served(trainer: CheckpointTrainer, prefixes: dict[int, Path], tmp_path: Path) -> None:
    link_checkpoint(prefixes[100], tmp_path / "run", 100)
    with AbiModel(trainer.model, config(tmp_path, session_num=2)) as model:
        info = model.ask("info")
        assert (info["version"], info["generation"]) == (100, 1)
        assert info["checkpoint"] == str(tmp_path / "run" / "model.ckpt-100")
        answer = model.run({"x": X})
        np.testing.assert_array_equal(answer.y, score(X, 100))
        assert (answer.model_version, answer.generation) == (100, 1)

        link_checkpoint(prefixes[200], tmp_path / "run", 200)
        wait_until(lambda: model.ask("info")["generation"] == 2, "the switch")
        for _ in range(4):  # on every session
            answer = model.run({"x": X})
            np.testing.assert_array_equal(answer.y, score(X, 200))
            assert (answer.model_version, answer.generation) == (200, 2)
        info = model.ask("info")
        assert (info["version"], info["update"]["error"]) == (200, "")
        wait_until(lambda: model.ask("info")["update"]["retired_versions"] == 0, "the end of the old version")


def test_the_newest_folder_is_served(trainer: CheckpointTrainer, prefixes: dict[int, Path], tmp_path: Path) -> None:
    link_checkpoint(prefixes[300], tmp_path / "run-1", 300)
    with processor.Model(trainer.model, config(tmp_path)) as model:
        time.sleep(0.02)  # folders are told apart by their time
        link_checkpoint(prefixes[200], tmp_path / "run-2", 200)
        wait_until(lambda: model.info["version"] == 200, "the switch to the later run")
        np.testing.assert_array_equal(model.run({"x": X})["y"], score(X, 200))


def test_an_earlier_step_does_not_replace_a_later_one(
    trainer: CheckpointTrainer, prefixes: dict[int, Path], tmp_path: Path
) -> None:
    link_checkpoint(prefixes[200], tmp_path, 200)
    with processor.Model(trainer.model, config(tmp_path)) as model:
        link_checkpoint(prefixes[100], tmp_path, 100)
        time.sleep(0.3)
        assert (model.info["version"], model.info["generation"]) == (200, 1)


@pytest.mark.parametrize("execution", ["inline", "pinned"])
def test_requests_during_a_switch_see_one_of_both_versions(
    trainer: CheckpointTrainer, prefixes: dict[int, Path], tmp_path: Path, execution: str
) -> None:
    link_checkpoint(prefixes[100], tmp_path, 100)
    x = np.arange(96, dtype=np.float32).reshape(32, 3)
    expected = {step: score(x, step) for step in (100, 200, 300, 400)}
    stop = threading.Event()
    seen: list[list[int]] = [[] for _ in range(4)]
    faults: list[str] = []

    def work(versions: list[int]) -> None:
        try:
            while not stop.is_set():
                answer = model.run({"x": x})
                versions.append(answer.model_version)
                if not np.array_equal(answer.y, expected[answer.model_version]):
                    faults.append(f"version {answer.model_version} answered {answer.y[:2]}")
        except Exception as error:
            faults.append(repr(error))

    with AbiModel(trainer.model, config(tmp_path, session_num=2, execution=execution)) as model:
        threads = [threading.Thread(target=work, args=(versions,)) for versions in seen]
        for thread in threads:
            thread.start()
        for step in (200, 300, 400):
            count = [len(versions) for versions in seen]
            wait_until(lambda: all(len(v) > n for v, n in zip(seen, count, strict=True)), "requests")  # noqa: B023
            link_checkpoint(prefixes[step], tmp_path, step)
            wait_until(lambda: model.ask("info")["version"] == step, f"step {step}")  # noqa: B023
        wait_until(lambda: all(versions and versions[-1] == 400 for versions in seen), "requests on the last version")
        stop.set()
        for thread in threads:
            thread.join()
        stats = model.ask("stats")
    assert not faults, faults[:3]
    assert stats["responses"] == {"OK": sum(map(len, seen))}
    for versions in seen:
        assert versions == sorted(versions), "a request went back to an earlier version"
        assert versions[0] == 100


def truncate_index(prefix: Path, folder: Path) -> None:
    link_checkpoint(prefix, folder, 200)
    index = folder / "model.ckpt-200.index"
    content = index.read_bytes()
    index.unlink()
    index.write_bytes(content[: len(content) // 2])


def write_noise(prefix: Path, folder: Path) -> None:
    link_checkpoint(prefix, folder, 200)
    data = folder / "model.ckpt-200.data-00000-of-00001"
    size = data.stat().st_size
    data.unlink()
    data.write_bytes(bytes(255 - byte for byte in prefix.with_name(f"{prefix.name}.data-00000-of-00001").read_bytes()))
    assert data.stat().st_size == size


def truncate_data(prefix: Path, folder: Path) -> None:
    link_checkpoint(prefix, folder, 200)
    data = folder / "model.ckpt-200.data-00000-of-00001"
    data.unlink()
    data.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncate_index, write_noise, truncate_data])
def test_damaged_checkpoint_leaves_the_old_one_serving(
    trainer: CheckpointTrainer, prefixes: dict[int, Path], tmp_path: Path, damage: object
) -> None:
    link_checkpoint(prefixes[100], tmp_path, 100)
    with processor.Model(trainer.model, config(tmp_path, session_num=2)) as model:
        assert callable(damage)
        damage(prefixes[200], tmp_path)
        wait_until(lambda: bool(model.info["update"]["error"]), "the error")
        assert "model.ckpt-200" in model.info["update"]["error"]
        assert (model.info["version"], model.info["generation"]) == (100, 1)
        np.testing.assert_array_equal(model.run({"x": X})["y"], score(X, 100))
        # The next good one is taken, and the error with it.
        link_checkpoint(prefixes[300], tmp_path, 300)
        wait_until(lambda: model.info["version"] == 300, "the good one after it")
        assert model.info["update"]["error"] == ""
        np.testing.assert_array_equal(model.run({"x": X})["y"], score(X, 300))


def test_error_ends_with_the_damaged_checkpoint(
    trainer: CheckpointTrainer, prefixes: dict[int, Path], tmp_path: Path
) -> None:
    link_checkpoint(prefixes[100], tmp_path, 100)
    with processor.Model(trainer.model, config(tmp_path)) as model:
        truncate_index(prefixes[200], tmp_path)
        wait_until(lambda: bool(model.info["update"]["error"]), "the error")
        for file in tmp_path.glob("model.ckpt-200*"):
            file.unlink()
        wait_until(lambda: not model.info["update"]["error"], "the end of the error")


def test_a_checkpoint_with_a_missing_shard_is_skipped_and_named(
    trainer: CheckpointTrainer, prefixes: dict[int, Path], tmp_path: Path
) -> None:
    link_checkpoint(prefixes[100], tmp_path, 100)
    with processor.Model(trainer.model, config(tmp_path)) as model:
        data, index = files_of(prefixes[200])
        shutil.copy(index, tmp_path / index.name)
        wait_until(lambda: bool(model.info["update"]["refused"]), "the notice")
        assert "checkpoint 200" in model.info["update"]["refused"]
        assert model.info["version"] == 100
        shutil.copy(data, tmp_path / data.name)
        wait_until(lambda: model.info["version"] == 200, "the switch when the shard is there")
        assert model.info["update"]["refused"] == ""


def test_checkpoint_of_another_graph_is_refused(
    trainer: CheckpointTrainer, prefixes: dict[int, Path], tmp_path: Path
) -> None:
    other = CheckpointTrainer(tmp_path / "other", ballast=99)
    try:
        prefix = other.save(tmp_path / "other" / "written", 200)
    finally:
        other.close()
    folder = tmp_path / "followed"
    link_checkpoint(prefixes[100], folder, 100)
    with processor.Model(trainer.model, config(folder)) as model:
        link_checkpoint(prefix, folder, 200)
        # The shape of `ballast` is another; a graph whose shapes are fixed cannot take it.
        wait_until(lambda: bool(model.info["update"]["error"]), "the error")
        assert "ballast" in model.info["update"]["error"]
        np.testing.assert_array_equal(model.run({"x": X})["y"], score(X, 100))


def save_increment(folder: Path, step: int, **tensors: object) -> Path:
    """Write an incremental checkpoint as DeepRec does; return its prefix."""
    tf = tensorflow()
    prefix = folder / ".incremental_checkpoint" / f"incremental_checkpoint-{step}"
    prefix.parent.mkdir(exist_ok=True)
    names = [name.replace("__", "-") for name in tensors]
    tf.raw_ops.SaveV2(
        prefix=str(prefix), tensor_names=names, shape_and_slices=[""] * len(names), tensors=list(tensors.values())
    )
    return prefix


def rows_of(row: int, value: float) -> dict[str, object]:
    """Return a changed row of the variable `w`."""
    return {"w__sparse_incr_keys": np.array([row]), "w__sparse_incr_values": np.array([[value]], np.float32)}


def test_incremental_checkpoints_change_the_full_one_before_them(
    trainer: CheckpointTrainer, prefixes: dict[int, Path], tmp_path: Path
) -> None:
    link_checkpoint(prefixes[100], tmp_path, 100)
    with processor.Model(trainer.model, config(tmp_path)) as model:
        first = save_increment(tmp_path, 150, **rows_of(1, 5), bias=np.array([7], np.float32), unknown=np.ones(3))
        wait_until(lambda: model.info["version"] == 150, "the increment")
        np.testing.assert_array_equal(model.run({"x": X})["y"], X @ np.float32([[1], [5], [3]]) + 7)
        assert model.info["increment"] == str(first)
        assert model.info["checkpoint"] == str(tmp_path / "model.ckpt-100")
        # Each one has all changes since the full checkpoint.
        save_increment(tmp_path, 160, **rows_of(0, 2))
        wait_until(lambda: model.info["version"] == 160, "the next increment")
        expected = X @ np.float32([[2], [2], [3]]) + 100
        np.testing.assert_array_equal(model.run({"x": X})["y"], expected)
        wrong = save_increment(tmp_path, 170, **rows_of(3, 9))
        wait_until(lambda: bool(model.info["update"]["error"]), "the error")
        assert f"incremental checkpoint '{wrong}': 'w': row 3, expected one of 3" in model.info["update"]["error"]
        np.testing.assert_array_equal(model.run({"x": X})["y"], expected)
        link_checkpoint(prefixes[200], tmp_path, 200)
        wait_until(lambda: model.info["version"] == 200, "the full one after them")
        assert (model.info["increment"], model.info["update"]["error"]) == (None, "")
        np.testing.assert_array_equal(model.run({"x": X})["y"], score(X, 200))


def test_a_wrong_incremental_checkpoint_does_not_keep_the_full_one_from_serving(
    trainer: CheckpointTrainer, prefixes: dict[int, Path], tmp_path: Path
) -> None:
    link_checkpoint(prefixes[100], tmp_path, 100)
    save_increment(tmp_path, 150, another=np.ones(1))
    with processor.Model(trainer.model, config(tmp_path)) as model:
        assert (model.info["version"], model.info["increment"]) == (100, None)
        assert "no variable of the model, expected some" in model.info["update"]["error"]
        save_increment(tmp_path, 250, another=np.ones(1))
        link_checkpoint(prefixes[200], tmp_path, 200)
        wait_until(lambda: model.info["version"] == 200, "the full one")
        wait_until(lambda: "checkpoint-250" in model.info["update"]["error"], "the error")


def test_folder_that_vanishes_leaves_the_model_serving(
    trainer: CheckpointTrainer, prefixes: dict[int, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "followed"
    link_checkpoint(prefixes[100], folder, 100)
    with processor.Model(trainer.model, config(folder)) as model:
        shutil.rmtree(folder)
        wait_until(lambda: bool(model.info["update"]["error"]), "the error")
        np.testing.assert_array_equal(model.run({"x": X})["y"], score(X, 100))
        link_checkpoint(prefixes[200], folder, 200)
        wait_until(lambda: model.info["version"] == 200, "the switch when it is back")


def test_tf2_model_follows_checkpoints(tmp_path: Path) -> None:
    import tensorflow as tf

    module = tf.Module()
    module.bias = tf.Variable([0.0], name="bias")

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def serve(x: object) -> dict[str, object]:
        return {"y": x + module.bias}

    module.serve = serve
    tf.saved_model.save(module, str(tmp_path / "model"), signatures={"serving_default": serve})
    folder = tmp_path / "followed"

    def save(step: int) -> None:
        module.bias.assign([float(step)])
        tf.train.Checkpoint(module).write(str(folder / f"model.ckpt-{step}"))
        (folder / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-{step}"\n', encoding="utf-8")

    folder.mkdir()
    save(10)
    with processor.Model(tmp_path / "model", config(folder)) as model:
        np.testing.assert_array_equal(model.run({"x": X})["y"], X + 10)
        save(20)
        wait_until(lambda: model.info["version"] == 20, "the switch")
        np.testing.assert_array_equal(model.run({"x": X})["y"], X + 20)


@pytest.mark.parametrize("minutes", [-1, 0])
def test_missing_checkpoint_fails_at_once_without_timeout(
    trainer: CheckpointTrainer, tmp_path: Path, minutes: int
) -> None:
    begin = time.monotonic()
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(processor.NotFoundError, match="checkpoint_dir"):
            processor.Model(trainer.model, config(folder, init_timeout_minutes=minutes))
    assert time.monotonic() - begin < 20


def test_load_waits_for_checkpoint_and_model(
    trainer: CheckpointTrainer, prefixes: dict[int, Path], tmp_path: Path
) -> None:
    path, folder = tmp_path / "model", tmp_path / "followed"

    def appear() -> None:
        time.sleep(0.4)
        link_checkpoint(prefixes[300], folder, 300)
        time.sleep(0.4)
        shutil.copytree(trainer.model, tmp_path / "copy")
        (tmp_path / "copy").rename(path)

    thread = threading.Thread(target=appear)
    begin = time.monotonic()
    thread.start()
    with processor.Model(path, config(folder, init_timeout_minutes=1)) as model:
        assert time.monotonic() - begin > 0.8
        np.testing.assert_array_equal(model.run({"x": X})["y"], score(X, 300))
    thread.join()


def test_free_does_not_wait_for_the_poll(trainer: CheckpointTrainer, prefixes: dict[int, Path], tmp_path: Path) -> None:
    link_checkpoint(prefixes[100], tmp_path, 100)
    model = processor.Model(trainer.model, config(tmp_path, checkpoint_poll_seconds=3600))
    begin = time.monotonic()
    model.close()
    assert time.monotonic() - begin < 10


@pytest.mark.slow
def test_twenty_switches_of_twenty_megabytes_keep_memory_threads_and_files(tmp_path: Path) -> None:
    trainer = CheckpointTrainer(tmp_path / "trainer", ballast=5_000_000)
    try:
        written = [trainer.save(tmp_path / "written", step) for step in (1, 2)]
    finally:
        trainer.close()
    folder = tmp_path / "followed"
    link_checkpoint(written[0], folder, 1)
    with processor.Model(trainer.model, config(folder, checkpoint_poll_seconds=0.02, session_num=2)) as model:
        before: tuple[float, int, int] | None = None
        for step in range(2, 23):
            link_checkpoint(written[(step - 1) % 2], folder, step)
            wait_until(lambda: model.info["version"] == step, f"step {step}", timeout=60)  # noqa: B023
            np.testing.assert_array_equal(model.run({"x": X})["y"], score(X, 1 + (step - 1) % 2))
            for file in folder.glob(f"model.ckpt-{step - 1}.*"):
                file.unlink()
            if step == 6:
                wait_until(lambda: model.info["update"]["retired_versions"] == 0, "the end of the old version")
                before = resident_mb(), num_threads(), num_fds()
        wait_until(lambda: model.info["update"]["retired_versions"] == 0, "the end of the old version")
        assert before is not None
        # Sixteen versions that were kept would be 320 MB; memory is given back shortly after the last of them has gone.
        wait_until(lambda: resident_mb() - before[0] < 100, "no more memory than before")
        # The updater may just be looking into the folder.
        wait_until(lambda: (num_threads(), num_fds()) == before[1:], "as many threads and files as before")
        assert model.info["generation"] == 22

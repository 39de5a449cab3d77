# SPDX-License-Identifier: Apache-2.0
"""What a host serves, to whom, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import processor
from helpers.hosts.contract_messages import encode
from helpers.hosts.host_clients import ONE, QUICK, X, scale_of
from helpers.hosts.state_directory import StateDirectory, entry, model_of, wait_for_status
from helpers.hosts.tfserving_messages import tfserving_outputs, tfserving_request
from helpers.models import model_builders
from helpers.models.gate import Gate, passing
from helpers.models.slow_requests import slow_request
from helpers.system.waiting import wait_until

CPUS = sorted(os.sched_getaffinity(0))


def test_host_without_a_desired_state_is_ready_and_serves_nothing(host: processor.Host, state: StateDirectory) -> None:
    status = host.status()
    assert (status["state"], status["models"], status["generation"]) == ("ready", {}, 0)
    assert status["pid"] == os.getpid()
    with pytest.raises(processor.NotFoundError, match="none is served"):
        host.process("eas", ONE)
    wait_until(lambda: state.actual()["state"] == "ready", "actual.json")


def test_host_loads_and_answers_in_both_protocols(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path]
) -> None:
    state.serve(host, {"tiny": model_of(scaled_models[2], 7)})
    answer = host.process("eas", ONE)
    assert scale_of(answer) == 2.0
    assert (answer.model_name, answer.model_version, answer.arm) == ("tiny", 7, "baseline")
    assert answer.session == 0
    assert answer.total_ns >= answer.run_ns > 0

    answer = host.process("tfserving", tfserving_request({"x": X}, name="tiny"))
    np.testing.assert_array_equal(tfserving_outputs(answer.data)["y"], model_builders.linear_score(X, 2.0))
    signature = json.loads(host.process("eas", b"").data)
    assert signature["inputs"][0]["name"] == "x"

    async def ask() -> processor.Answer:
        return await host.aprocess("eas", ONE, model_name="tiny")

    assert scale_of(asyncio.run(ask())) == 2.0


def test_files_follow_their_schemas(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path], repository: Path
) -> None:
    schemas = {
        name: json.loads((repository / "docs/schemas" / f"{name}.schema.json").read_text(encoding="utf-8"))
        for name in ("desired", "actual")
    }
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    document = (repository / "docs/model_host.md").read_text(encoding="utf-8")
    blocks = [
        block.replace("…", "x")
        for block in document.split("\n\n")
        if block.startswith(('    {"schema"', '    {\n      "schema"'))
    ]
    actual = next(block for block in blocks if '"started"' in block)
    examples = {"desired": json.loads(blocks[0]), "actual": json.loads(actual)}
    for name, example in examples.items():
        if name == "actual":
            example |= {"memory_bytes": 1, "memory_limit_bytes": 2, "stuck_loads": 0}
            for version in example["models"]["ranking"]["versions"].values():
                version["since"] = example["started"]
        jsonschema.validate(example, schemas[name])
    state.serve(host, {"tiny": model_of(scaled_models[1]), "broken": model_of(scaled_models[2])})
    state.desire({"tiny": model_of(scaled_models[2]), "broken": model_of(Path("/nowhere"))})
    wait_for_status(host, lambda status: status["models"]["broken"]["versions"]["1"]["replacement"] is not None)
    jsonschema.validate(host.status(), schemas["actual"])
    wait_until(lambda: state.actual()["generation"] == state.generation, "actual.json")
    jsonschema.validate(state.actual(), schemas["actual"])


MINIMAL = {"schema": 1, "generation": 1, "models": {"m": {"baseline": 1, "versions": {"1": {"path": "/m"}}}}}


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ((), {"schema": 2}),
        ((), {"generation": -1}),
        ((), {"surprise": 1}),
        ((), {"waiting": ""}),
        ((), {"hosts": {"*": {"drained": 1}}}),
        (("models",), {"a b": {"baseline": 1, "versions": {"1": {"path": "/m"}}}}),
        (("models", "m"), {"baseline": "1"}),
        (("models", "m"), {"labels": {"stable": 0}}),
        (("models", "m"), {"routing": {"arms": [{"version": 1, "offset": 0}]}}),
        (("models", "m"), {"routing": {"arms": [{"version": 1, "offset": 0, "weight": 10001}]}}),
        (("models", "m", "versions"), {"01": {"path": "/m"}}),
        (("models", "m", "versions", "1"), {"path": "m"}),
        (("models", "m", "versions", "1"), {"config": {"model_name": "x"}}),
        (("models", "m", "versions", "1"), {"batching": {"mode": "on"}}),
        (("models", "m", "versions", "1"), {"limits": {"max_queue": 0}}),
        (("models", "m", "versions", "1"), {"traffic": 1}),
        (("models", "m", "versions", "1"), {"needs": "op:RecLater"}),
    ],
)
def test_schema_and_library_refuse_the_same(
    host: processor.Host, state: StateDirectory, repository: Path, place: tuple[str, ...], value: dict[str, Any]
) -> None:
    schema = json.loads((repository / "docs/schemas/desired.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(MINIMAL, schema)
    changed = json.loads(json.dumps(MINIMAL))
    inner = changed
    for key in place:
        inner = inner[key]
    inner |= value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(changed, schema)
    state.write(json.dumps(changed))
    # The folder /m is not there either, which is told of a version that is not refused before.
    wait_for_status(host, lambda status: any("desired.json: " in message for message in refusals(status)))
    (refusal,) = (message for message in refusals(host.status()) if "desired.json: " in message)
    assert next(iter(value)) in refusal


def refusals(status: dict[str, Any]) -> list[str]:
    """What a host refuses: the file, a model, or a version."""
    errors = [version["error"] for model in status["models"].values() for version in model["versions"].values()]
    return [error for error in (status["desired_error"], *errors) if error is not None]


def test_errors_name_what_is_not_served(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path]
) -> None:
    state.serve(host, {"a": model_of(scaled_models[1], 3), "b": model_of(scaled_models[2])})
    for request, kind, words in [
        ({"model_name": "c"}, processor.NotFoundError, "model 'c': not served"),
        ({}, processor.InvalidArgumentError, "no model named"),
        ({"model_name": "a", "model_version": 4}, processor.NotFoundError, "version 4"),
        ({"model_name": "a", "version_label": "stable"}, processor.InvalidArgumentError, "label 'stable'"),
        ({"model_name": "a", "method": "Classify"}, processor.UnimplementedError, "'Classify'"),
        ({"model_name": "a", "deadline": 1.0}, processor.DeadlineExceededError, "deadline"),
    ]:
        with pytest.raises(kind, match=words) as failure:
            host.process("eas", ONE, **request)
        assert failure.value.answer is not None
        assert failure.value.answer.data == b""
    with pytest.raises(processor.UnimplementedError, match="'morse'"):
        host.process("morse", ONE, model_name="a")
    with pytest.raises(processor.InvalidArgumentError, match="'b' in the bytes and 'a' beside"):
        host.process("tfserving", tfserving_request({"x": X}, name="b"), model_name="a")
    with pytest.raises(processor.InvalidArgumentError, match="malformed"):
        host.process("tfserving", b"\x0a\xff", model_name="a")
    with pytest.raises(processor.InvalidArgumentError, match="input 'y'") as failure:
        host.process("eas", encode({"y": X}), model_name="a")
    assert failure.value.answer.model_version == 3


def test_numbers_and_labels_pin_a_version(
    host: processor.Host, state: StateDirectory, scaled_models: dict[int, Path]
) -> None:
    versions = {str(n): {"path": str(scaled_models[n])} for n in (1, 2)} | {
        "3": {"path": str(scaled_models[3]), "traffic": False}
    }
    state.serve(host, {"m": {"baseline": 1, "versions": versions, "labels": {"canary": 2, "spare": 3}}})
    assert scale_of(host.process("eas", ONE)) == 1.0
    for request in ({"model_version": 2}, {"version_label": "canary"}):
        answer = host.process("eas", ONE, **request)
        assert (scale_of(answer), answer.arm) == (2.0, "pinned")
    for request in ({"model_version": 3}, {"version_label": "spare"}):
        with pytest.raises(processor.NotFoundError, match="without traffic"):
            host.process("eas", ONE, **request)
    told = json.loads(host.process("tfserving_json", b"", method="status", model_name="m").data)
    states = {version["version"]: version["state"] for version in told["model_version_status"]}
    assert states["1"] == states["2"] == "AVAILABLE"
    assert states["3"] != "AVAILABLE", "nobody may choose it"
    for spec in ({"version": 2}, {"version_label": "canary"}):
        answer = host.process("tfserving", tfserving_request({"x": X}, name="m", **spec))
        assert answer.model_version == 2


def test_keys_stick_to_their_arms(host: processor.Host, state: StateDirectory, string_model: Path) -> None:
    from serving_proxy.experiments.assign import bucket

    versions = {str(n): {"path": str(string_model)} for n in (1, 2)}
    routing = {"layer": "page", "key": {"input": "item"}, "arms": [{"version": 2, "offset": 0, "weight": 5000}]}
    state.serve(
        host, {"m": {"baseline": 1, "versions": versions, "routing": routing}}, layers={"page": {"salt": "pepper"}}
    )

    def chosen(items: list[str], **metadata: str) -> tuple[int, str | None]:
        inputs = {"item": np.array([i.encode() for i in items], object), "price": np.zeros(len(items), np.float32)}
        answer = host.process("eas", encode(inputs), metadata=metadata)
        by_name = host.process("tfserving", tfserving_request(inputs, name="m"), metadata=metadata)
        assert by_name.model_version == answer.model_version
        return answer.model_version, answer.arm

    seen = set()
    for i in range(40):
        expected = (2, "arm") if bucket(b"pepper", str(i).encode()) < 5000 else (1, "baseline")
        seen.add(expected)
        assert chosen(["anything"], **{"X-Routing-Key": str(i)}) == expected
        assert chosen([str(i)]) == expected
        assert chosen([str(i), str(i)]) == expected
    assert len(seen) == 2
    # Values that differ are no key: the shares hold.
    inputs = {"item": np.array([b"a", b"b"], object), "price": np.zeros(2, np.float32)}
    counts = [host.process("eas", encode(inputs)).model_version for _ in range(50)]
    assert 40 <= counts.count(2) <= 60 or 20 <= counts.count(2) <= 30

    routing["paused"] = True
    state.serve(host, {"m": {"baseline": 1, "versions": versions, "routing": routing}})
    assert {chosen([str(i)]) for i in range(10)} == {(1, "baseline")}


def test_refusals_by_limits_say_when_to_retry(host: processor.Host, state: StateDirectory, slow_model: Path) -> None:
    slow = slow_request(300)
    limits = {"max_queue": 1}
    state.serve(host, {"m": model_of(slow_model, config=QUICK, cpuset=str(CPUS[0]), limits=limits)})

    async def ask(number: int) -> list[Any]:
        tasks = [host.aprocess("eas", slow) for _ in range(number)]
        return await asyncio.gather(*tasks, return_exceptions=True)

    def refused(answers: list[Any]) -> list[Any]:
        return [answer for answer in answers if isinstance(answer, processor.ResourceExhaustedError)]

    asyncio.run(ask(1))
    answers = asyncio.run(ask(4))
    assert len(refused(answers)) == 2, answers
    for failure in refused(answers):
        assert "max_queue" in str(failure)
        assert failure.answer.retry_after_us > 10_000
        assert failure.answer.model_name == "m"
    generation = state.desire(
        {"m": model_of(slow_model, config=QUICK, cpuset=str(CPUS[0]), limits={"max_in_flight": 3})}
    )
    wait_for_status(host, lambda status: status["generation"] == generation)
    assert len(refused(asyncio.run(ask(4)))) == 1


async def becomes(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, while the requests of this loop go on."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


def test_cancelled_and_late_requests_do_not_run(
    host: processor.Host, state: StateDirectory, gated_model: Path, tmp_path: Path
) -> None:
    gate, quick = Gate(tmp_path), encode(passing(1.0))
    state.serve(host, {"m": model_of(gated_model, config=QUICK)})

    async def ask() -> None:
        first = asyncio.ensure_future(host.aprocess("eas", encode(gate.inputs)))
        await becomes(lambda: entry(host, "m", 1)["in_flight"] == 1)
        second = asyncio.ensure_future(host.aprocess("eas", quick))
        await becomes(lambda: entry(host, "m", 1)["in_flight"] == 2)
        late = asyncio.ensure_future(host.aprocess("eas", quick, deadline=time.monotonic() + 0.01))
        second.cancel()
        with pytest.raises(processor.DeadlineExceededError):
            await late
        assert not first.done()
        await asyncio.to_thread(gate.open)
        assert (await first).model_name == "m"

    asyncio.run(ask())
    wait_until(lambda: entry(host, "m", 1)["in_flight"] == 0, "no request left")


def test_variants_give_way_to_the_baseline(
    host: processor.Host, state: StateDirectory, gated_model: Path, tmp_path: Path
) -> None:
    quick = encode(passing(1.0))
    versions = {str(n): {"path": str(gated_model), "config": QUICK, "cpuset": str(CPUS[n % len(CPUS)])} for n in (1, 2)}
    state.serve(host, {"m": {"baseline": 1, "versions": versions}})
    gates = []
    for name in ("baseline", "variant"):
        (tmp_path / name).mkdir()
        gates.append(Gate(tmp_path / name))

    async def ask(request: bytes, **more: Any) -> Any:
        return (await asyncio.gather(host.aprocess("eas", request, **more), return_exceptions=True))[0]

    async def ask_all() -> tuple[list[Any], list[Any]]:
        baseline = [asyncio.ensure_future(ask(encode(gates[0].inputs)))]
        await becomes(lambda: entry(host, "m", 1)["in_flight"] == 1)
        baseline += [asyncio.ensure_future(ask(quick)) for _ in range(2)]
        await becomes(lambda: entry(host, "m", 1)["in_flight"] == 3)
        variant = [asyncio.ensure_future(ask(encode(gates[1].inputs), model_version=2))]
        await becomes(lambda: entry(host, "m", 2)["in_flight"] == 1)
        variant.append(asyncio.ensure_future(ask(quick, model_version=2)))
        await asyncio.sleep(0.05)
        for _ in range(1200 if len(CPUS) <= 2 else 0):
            # While the gates are closed, none is answered, but it may be refused.
            if variant[-1].done():
                break
            variant.append(asyncio.ensure_future(ask(quick, model_version=2)))
            await asyncio.wait(variant[-1:], timeout=0.05)
        for gate in gates:
            await asyncio.to_thread(gate.open)
        return await asyncio.gather(*variant), await asyncio.gather(*baseline)

    (first, second, *others), baseline = asyncio.run(ask_all())
    assert isinstance(first, processor.Answer), first
    assert isinstance(second, processor.Answer), "refused before the baseline had to wait for a while"
    assert all(isinstance(answer, processor.Answer) for answer in baseline)
    if len(CPUS) <= 2:
        assert isinstance(others[-1], processor.ResourceExhaustedError), others
        assert "variant" in str(others[-1])


def test_drain_waits_for_requests_and_refuses_new_ones(
    host: processor.Host, state: StateDirectory, gated_model: Path, tmp_path: Path
) -> None:
    gate = Gate(tmp_path)
    state.serve(host, {"m": model_of(gated_model, config=QUICK)})
    answers: list[processor.Answer] = []
    client = threading.Thread(target=lambda: answers.append(host.process("eas", encode(gate.inputs))))
    client.start()
    wait_until(lambda: entry(host, "m", 1)["in_flight"] == 1, "a request")
    with pytest.raises(processor.DeadlineExceededError, match="1 requests left"):
        host.drain(time.monotonic() + 0.01)
    assert host.status()["state"] == "draining"
    with pytest.raises(processor.UnavailableError, match="draining"):
        host.process("eas", encode(passing(1.0)))
    threading.Timer(0.1, gate.open).start()
    host.drain(time.monotonic() + 60)
    client.join()
    assert len(answers) == 1
    wait_until(lambda: state.actual()["state"] == "draining", "actual.json")


def test_close_cancels_waiting_requests_and_refuses_later_ones(
    state: StateDirectory, gated_model: Path, tmp_path: Path
) -> None:
    gate = Gate(tmp_path)
    host = processor.Host(state.path)
    state.serve(host, {"m": model_of(gated_model, config=QUICK)})

    async def ask() -> list[Any]:
        tasks = [asyncio.ensure_future(host.aprocess("eas", encode(gate.inputs)))]
        await becomes(lambda: entry(host, "m", 1)["in_flight"] == 1)
        tasks += [asyncio.ensure_future(host.aprocess("eas", encode(passing(1.0)))) for _ in range(2)]
        await becomes(lambda: entry(host, "m", 1)["in_flight"] == 3)
        closing = asyncio.create_task(asyncio.to_thread(host.close))
        await asyncio.wait(tasks[1:])
        await asyncio.to_thread(gate.open)
        await closing
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, *others = asyncio.run(ask())
    assert isinstance(first, processor.Answer)
    assert all(isinstance(other, processor.CancelledError) for other in others)
    with pytest.raises(processor.FailedPreconditionError, match="closed"):
        host.process("eas", ONE)
    host.close()


def test_two_hosts_with_one_id_are_refused(host: processor.Host, state: StateDirectory) -> None:
    with pytest.raises(processor.AlreadyExistsError, match=f"process {os.getpid()}"):
        processor.Host(state.path)
    with processor.Host(state.path, "host-1") as other:
        assert other.status()["host"] == "host-1"
    for host_id in ("", "..", "a/b"):
        with pytest.raises(processor.InvalidArgumentError, match="host_id"):
            processor.Host(state.path, host_id)
    with pytest.raises(processor.InvalidArgumentError, match="maintenance_cpus"):
        processor.Host(state.path, "host-2", maintenance_cpus=str(CPUS[-1] + 1))


def test_endpoints_are_in_the_status(host: processor.Host, state: StateDirectory) -> None:
    host.set_endpoint("grpc", "127.0.0.1:8500")
    host.set_endpoint("rest", "127.0.0.1:8501")
    host.set_endpoint("rest", None)
    assert host.status()["endpoints"] == {"grpc": "127.0.0.1:8500"}
    wait_until(lambda: state.actual()["endpoints"] == {"grpc": "127.0.0.1:8500"}, "actual.json")

"""The embedded server's life: started whole, and gone without a trace whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil
import pytest
import tenacity

from tests.conftest import sender
from tuner.adapters.embedded import server as module
from tuner.adapters.embedded import watchdog
from tuner.adapters.embedded.watchdog import SHARED_MEMORY
from tuner.adapters.triton.embedded import EmbeddedTriton, TritonOptions
from tuner.errors import AdapterError, InvalidInput

pytestmark = pytest.mark.triton

PREFIX = len("servetune_0123456789ab_")
"""Length of what the names of a server's shared memory begin with."""


def traces() -> set[Path]:
    """Files of ended servers of this package, outside the cache.

    Whoever else uses the machine may run servers, too: their watchdogs name their files as arguments.
    """
    found = {
        *SHARED_MEMORY.glob("servetune_*"),
        *Path(tempfile.gettempdir()).glob("servetune-embeddedtriton-*"),
    }
    used = {part for process in psutil.process_iter(["cmdline"]) for part in process.info["cmdline"] or ()}
    return {path for path in found if str(path) not in used and path.name[:PREFIX] not in used}


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Checks that a test leaves no file."""
    before = traces()
    yield
    assert wait_until(lambda: not traces() - before)


def wait_until(condition: Callable[[], bool]) -> bool:
    patiently = tenacity.Retrying(
        stop=tenacity.stop_after_delay(60),
        wait=tenacity.wait_fixed(0.05),
        retry=tenacity.retry_if_result(lambda result: not result),
    )
    return patiently(condition)


def gone(pids: Iterable[int]) -> bool:
    return not any(map(is_alive, pids))


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it may go between any two looks
        return False


def test_life(nothing_left: None) -> None:
    """It serves while it is open, has children, and is gone afterwards."""
    with EmbeddedTriton() as server:
        sender(server.target)(2)
        processes = server.processes()

        assert processes[0] == server.pid
        assert len(processes) >= 2

    assert gone(processes)
    assert server.processes() == []
    server.stop()


def test_several_models(nothing_left: None) -> None:
    """All are served; the target names the chosen one."""
    import numpy as np
    import tritonclient.grpc as tritongrpc

    with EmbeddedTriton("cnn", models=("mlp", "cnn")) as server:
        data = tritongrpc.InferInput("input", [2, 3, 32, 32], "FP32")
        data.set_data_from_numpy(np.ones((2, 3, 32, 32), np.float32))
        with tritongrpc.InferenceServerClient(f"127.0.0.1:{server.ports.grpc}") as client:
            client.infer("cnn", [data])

        assert "/cnn?" in server.target


@pytest.mark.parametrize(("model", "shape"), [("mlp", (256,)), ("cnn", (3, 32, 32))])
def test_answers_are_right(nothing_left: None, model: str, shape: tuple[int, ...]) -> None:
    """What comes over the wire is what the network computes from what was sent."""
    import numpy as np
    import onnxruntime
    import tritonclient.grpc as tritongrpc

    rows = np.random.default_rng(1).standard_normal((5, *shape)).astype(np.float32)
    data = tritongrpc.InferInput("input", list(rows.shape), "FP32")
    data.set_data_from_numpy(rows)

    with EmbeddedTriton(model) as server:
        assert server._folder is not None
        network = onnxruntime.InferenceSession(server._folder / "models" / model / "1" / "model.onnx")
        with tritongrpc.InferenceServerClient(f"127.0.0.1:{server.ports.grpc}") as client:
            output = client.infer(model, [data]).as_numpy("output")

        np.testing.assert_allclose(output, network.run(None, {"input": rows})[0], rtol=1e-4, atol=1e-5)


def test_kill_and_restart(nothing_left: None) -> None:
    """After a crash it comes back on the same ports."""
    with EmbeddedTriton() as server:
        ports, killed = server.ports, server.processes()
        server.kill()
        assert wait_until(lambda: gone(killed))

        server.restart()

        assert server.ports == ports
        sender(server.target)(1)


def test_exception_inside(nothing_left: None) -> None:
    """An error of the user's ends it, too."""
    processes = []

    def fail() -> None:
        with EmbeddedTriton() as server:
            processes.extend(server.processes())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()

    assert processes
    assert gone(processes)


def test_death_is_told_with_the_last_words(nothing_left: None) -> None:
    """Who sees a connection refused learns that the server is gone, and what it said last."""

    def die() -> None:
        with EmbeddedTriton() as server:
            killed = server.processes()
            os.kill(server.pid, signal.SIGKILL)
            assert wait_until(lambda: gone(killed))
            raise AdapterError("connection refused")

    with pytest.raises(AdapterError, match=r"embedded Triton has ended, the end of its log: .+"):
        die()


def test_failure_at_start(nothing_left: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of its log is in the message."""
    monkeypatch.setattr(
        TritonOptions, "flags", lambda *_: ["--model-control-mode=explicit", "--load-model=nothing"]
    )

    with (
        pytest.raises(AdapterError, match=r"(?s)ended at its start.*failed to load all models"),
        EmbeddedTriton(),
    ):
        pass


def test_model_that_never_gets_ready(nothing_left: None) -> None:
    """Waiting ends, and so does the server."""
    with (
        pytest.raises(AdapterError, match="not ready within"),
        EmbeddedTriton(start_timeout=0.0),
    ):
        pass


def test_taken_port_is_tried_again(nothing_left: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another program takes a port in the meantime, other ports are used."""
    with EmbeddedTriton() as first:
        found = [first.ports, module.free_ports(3)]
        monkeypatch.setattr(module, "free_ports", lambda _: found.pop(0))

        with EmbeddedTriton() as second:
            assert not set(second.ports) & set(first.ports)


@pytest.mark.parametrize(("model", "models"), [("bert", ()), ("mlp", ("cnn",))])
def test_unknown_model(nothing_left: None, model: str, models: tuple[str, ...]) -> None:
    """Only built-in models can be embedded."""
    with pytest.raises(InvalidInput, match="embedded model"), EmbeddedTriton(model, models=models):
        pass


PARENT = """
    import faulthandler, os, signal, sys, time
    from tuner.adapters.triton.embedded import EmbeddedTriton
    faulthandler.dump_traceback_later(20)  # where it is, should it not end
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore Ctrl-C
    with EmbeddedTriton() as server:
        print(*server.processes(), server._watchdog.pid, flush=True)
        if "fork" in sys.argv and os.fork() == 0:
            time.sleep(20)  # a child that holds the parent's pipe open
            os._exit(0)
        for _ in range(600):  # one long sleep goes on if the kernel gives the signal to another thread
            time.sleep(0.1)
"""


@pytest.mark.parametrize(
    ("way", "arguments"),
    [(signal.SIGINT, []), (signal.SIGTERM, []), (signal.SIGKILL, []), (signal.SIGKILL, ["fork"])],
)
def test_death_of_the_parent(
    nothing_left: None, tmp_path: Path, way: signal.Signals, arguments: list[str]
) -> None:
    """Ctrl-C, a polite and a rude kill of the parent all end the server, its children and its files."""
    command = [sys.executable, "-c", textwrap.dedent(PARENT), *arguments]
    errors = tmp_path / "errors"
    with (
        errors.open("w") as file,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=file, text=True, start_new_session=True
        ) as parent,
    ):
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) >= 3
        children = psutil.Process(parent.pid).children()
        time.sleep(0.5 if arguments else 0)  # let it fork

        os.kill(parent.pid, way)

        try:
            assert wait_until(lambda: gone(pids))
        except tenacity.RetryError:  # seen three times after SIGINT, when it slept for 60 s at once
            left = [psutil.Process(pid).cmdline()[:2] for pid in pids if is_alive(pid)]
            said = errors.read_text()
            pytest.fail(f"the parent's exit status is {parent.poll()}; left are {left}; it says: {said}")
        os.killpg(parent.pid, signal.SIGKILL) if arguments else None
        assert children


def test_death_of_the_watchdog() -> None:
    """If even the watchdog is killed, the kernel ends the server."""
    before, scratch = traces(), watchdog._scratch()
    server = EmbeddedTriton()
    server.start()
    processes = server.processes()

    server._watchdog.kill()

    assert wait_until(lambda: gone(processes))
    for file in (traces() - before) & set(SHARED_MEMORY.iterdir()):
        file.unlink(missing_ok=True)  # nobody is left to do it
    watchdog._remove_scratch(watchdog._scratch() - scratch, time.time())
    server.stop()

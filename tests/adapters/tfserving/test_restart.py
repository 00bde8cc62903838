"""The operator's restart command."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.docs.page import ROOT, blocks
from tests.waiting import LONGEST, eventually
from tuner.adapters.tfserving.batching import parse_batching
from tuner.adapters.tfserving.flags import first_seen, read_flags, threads
from tuner.adapters.tfserving.restart import ThreadKnobs
from tuner.adapters.tfserving.restart_command import RestartCommand
from tuner.errors import AdapterError, InvalidInput, Refused, TimedOut, Unreachable

NOW = {"batch_threads": 2.0, "inter_op": 0.0, "intra_op": 1.0}


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., RestartCommand]:
    def write(script: str) -> RestartCommand:
        path = tmp_path / "restart"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return RestartCommand(path)

    return write


def test_values_are_words(command: Callable[..., RestartCommand], tmp_path: Path) -> None:
    """Whole numbers, without a shell in between."""
    command(f'echo "$@" > {tmp_path}/said').restart({**NOW, "batch_threads": 4.0}, LONGEST)

    assert (tmp_path / "said").read_text() == "batch_threads=4 inter_op=0 intra_op=1\n"


def test_failure_has_its_last_words(command: Callable[..., RestartCommand]) -> None:
    """And its exit code."""
    with pytest.raises(Refused, match="exit code 3: no such unit"):
        command("echo no such unit >&2; exit 3").restart(NOW, LONGEST)


def test_a_command_that_hangs(command: Callable[..., RestartCommand]) -> None:
    """It is ended, and the message names the option that gives it more time."""
    with pytest.raises(TimedOut, match=r"within 0\.2 s; .* load_timeout=1s in the target"):
        command("exec sleep 30").restart(NOW, 0.2)


def test_asking(command: Callable[..., RestartCommand]) -> None:
    """Without arguments it says what runs, with whatever else it says."""
    assert command("echo running: batch_threads=2 inter_op=0 intra_op=1").ask() == NOW
    with pytest.raises(AdapterError, match="does not print inter_op=N"):
        command("echo batch_threads=2").ask()


@pytest.mark.parametrize(
    "word",
    [
        "threads=3",
        "batch_threads=2.5",
        "batch_threads=-1",
        f"intra_op={'9' * 400}",
        "inter_op=",
        "inter_op=1",
    ],
)
def test_an_answer_with_anything_else(command: Callable[..., RestartCommand], word: str) -> None:
    """Unknown names, what is no number of threads, and what is said twice."""
    with pytest.raises(AdapterError, match=r"prints '.*nothing else that has a ="):
        command(f"echo inter_op=0 {word} batch_threads=2 intra_op=1").ask()


@pytest.fixture
def of_the_page(
    command: Callable[..., RestartCommand], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> RestartCommand:
    """The command that the page shows, with a folder and a ``systemctl`` of ours."""
    texts = blocks(ROOT / "docs" / "tfserving.md", "text")
    (page,) = [text for text in texts if text.startswith("#!/bin/sh\n")]
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/restarts\n')
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return command(page.removeprefix("#!/bin/sh\n").replace("/etc/tfs", str(tmp_path)))


def test_asking_the_command_of_the_page_changes_nothing(of_the_page: RestartCommand, tmp_path: Path) -> None:
    """It says what it was last given; only with words it writes files and restarts the server."""
    with pytest.raises(AdapterError, match="words: No such file"):
        of_the_page.ask()
    assert {path.name for path in tmp_path.iterdir()} == {"restart", "systemctl"}
    of_the_page.restart(NOW, LONGEST)
    assert of_the_page.ask() == NOW

    batching = parse_batching((tmp_path / "batching.pbtxt").read_text(), "the file")
    assert batching.num_batch_threads.value == 2
    assert (tmp_path / "threads.env").read_text() == "INTER_OP=0\nINTRA_OP=1\n"
    assert len((tmp_path / "restarts").read_text().splitlines()) == 1


def test_the_command_of_the_page_leaves_threads_to_the_server(
    of_the_page: RestartCommand, tmp_path: Path
) -> None:
    """With 0 the field is absent, in a file that is not empty; the server can read it whatever our umask."""
    before = os.umask(0o077)
    try:
        of_the_page.restart({**NOW, "batch_threads": 0.0}, LONGEST)
    finally:
        os.umask(before)

    file = tmp_path / "batching.pbtxt"
    batching = parse_batching(file.read_text(), "the file")
    assert not batching.HasField("num_batch_threads")
    assert batching.ListFields()
    assert file.stat().st_mode & 0o777 == 0o644


def test_a_server_in_the_background_is_no_time_out(
    command: Callable[..., RestartCommand], tmp_path: Path
) -> None:
    """The command has ended, though its child keeps the output open; the child lives on, and may print."""
    script = f"""echo batch_threads=2 inter_op=0 intra_op=1
(while [ ! -e {tmp_path}/end ]; do echo noise; sleep 0.05; done; echo survived > {tmp_path}/survived) &"""

    assert command(script).ask() == NOW
    command(script).restart(NOW, LONGEST)

    time.sleep(0.2)  # it prints meanwhile
    (tmp_path / "end").touch()
    eventually((tmp_path / "survived").exists)


def test_a_command_of_many_words(command: Callable[..., RestartCommand]) -> None:
    """Only the last ones are kept, and one line of them is repeated."""
    flood = "yes 'a line of many' | head -c 30000000 >&2; printf 'the\\033[31m end' >&2; exit 1"

    with pytest.raises(Refused, match=r"exit code 1: the\[31m end$"):
        command(flood).restart(NOW, LONGEST)


def test_what_a_time_out_leaves(command: Callable[..., RestartCommand], tmp_path: Path) -> None:
    """Nothing: what the command waits for is ended with it."""
    late = f"{tmp_path}/late"
    with pytest.raises(TimedOut):
        command(f"sh -c 'sleep 600; touch {late}'; true").restart(NOW, 0.2)

    def running() -> list[str]:
        return [" ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"])]

    eventually(lambda: not any(late in line for line in running()))


def test_ctrl_c_waits_for_the_end(command: Callable[..., RestartCommand], tmp_path: Path) -> None:
    """The command is in a session of its own, and we stop only when it has ended."""
    script = command(
        f"kill -INT $PPID; ps -o sid= -p $$ > {tmp_path}/session; sleep 0.3; touch {tmp_path}/done"
    )

    with pytest.raises(KeyboardInterrupt):
        script.restart(NOW, LONGEST)

    assert (tmp_path / "done").exists()
    assert int((tmp_path / "session").read_text()) != os.getsid(0)


def test_the_token_is_not_passed_on(
    command: Callable[..., RestartCommand], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else is in the environment is."""
    monkeypatch.setenv("SERVETUNE_TOKEN", "a-secret-of-the-operator")
    monkeypatch.setenv("SERVETUNE_OTHER", "x")

    command(f"env > {tmp_path}/seen").restart(NOW, LONGEST)

    seen = (tmp_path / "seen").read_text()
    assert "a-secret" not in seen
    assert "SERVETUNE_OTHER=x" in seen


def test_who_else_could_replace_it(command: Callable[..., RestartCommand], tmp_path: Path) -> None:
    """The folder, and those above it, are checked as the file is."""
    command("true")
    tmp_path.chmod(0o777)
    with pytest.raises(InvalidInput, match=rf"{tmp_path} can be written by anybody; chmod o-w"):
        command("true")

    tmp_path.chmod(0o1777)  # as /tmp: nobody can replace the files of others
    command("true")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_whose_it_is(command: Callable[..., RestartCommand], tmp_path: Path) -> None:
    """Root's or our own."""
    command("true")
    os.chown(tmp_path / "restart", 12345, -1)
    with pytest.raises(InvalidInput, match=r"belongs to another user \(number 12345\)"):
        RestartCommand(tmp_path / "restart")


def test_it_is_checked_again_before_use(command: Callable[..., RestartCommand], tmp_path: Path) -> None:
    """What has become unsafe, or has gone, is refused, and the server goes on as it is."""
    script = command(f"touch {tmp_path}/ran")
    (tmp_path / "restart").chmod(0o777)
    with pytest.raises(Refused, match="written by anybody"):
        script.restart(NOW, LONGEST)
    (tmp_path / "restart").unlink()
    with pytest.raises(Refused, match="No such file"):
        script.restart(NOW, LONGEST)

    assert not (tmp_path / "ran").exists()


def test_commands_that_may_not_be_run(tmp_path: Path) -> None:
    """Not executable, or anybody could have written it."""
    path = tmp_path / "restart"
    path.write_text("#!/bin/sh\n")
    with pytest.raises(InvalidInput, match="not executable"):
        RestartCommand(path)

    path.chmod(0o777)
    with pytest.raises(InvalidInput, match="written by anybody"):
        RestartCommand(path)


class Server(RestartCommand):
    """A server whose process can be seen."""

    def __init__(self, *, obeys: bool = True) -> None:
        self._path = Path("restart")  # there is no file to check
        self.values, self.born, self.obeys = dict(NOW), 1.0, obeys
        self.restarts: list[dict[str, float]] = []

    def restart(self, values: Mapping[str, float], timeout: float) -> None:
        self.restarts.append(dict(values))
        if values["intra_op"] == 7:
            raise Refused("unlucky")
        if self.obeys:
            self.values, self.born = dict(values), self.born + 1

    def flags(self) -> dict[str, str]:
        return {
            "tensorflow_inter_op_parallelism": f"{self.values['inter_op']:.0f}",
            "tensorflow_intra_op_parallelism": f"{self.values['intra_op']:.0f}",
        }

    def knobs(self) -> ThreadKnobs:
        return ThreadKnobs(self, self.flags, lambda: self.born, lambda: None, 0.3)


NO_THREADS = {"batch_threads": 0.0}


def test_a_restart() -> None:
    """The command gets the values of all knobs."""
    server = Server()

    server.knobs().write({"inter_op": 3.0})

    assert server.restarts == [{**NOW, **NO_THREADS, "inter_op": 3.0}]


def test_a_new_process_with_other_flags() -> None:
    """The command has started it as it was: the change has failed."""
    server = Server()

    def restart(values: Mapping[str, float], timeout: float) -> None:
        server.born += 1

    server.restart = restart  # type: ignore[method-assign]

    with pytest.raises(Refused, match=r"inter_op=0 .*instead of .*inter_op=3"):
        server.knobs().write({"inter_op": 3.0})


def test_nothing_to_change() -> None:
    """No restart for values that run already."""
    server = Server()

    server.knobs().write({"inter_op": 0.0})

    assert server.restarts == []


def test_the_old_process_is_no_answer() -> None:
    """If it still runs when the time is over, the server is restarted as it was."""
    server = Server(obeys=False)

    with pytest.raises(Refused, match=r"old process still runs.*runs as it did"):
        server.knobs().write({"inter_op": 3.0})


def test_the_old_process_is_known_though_the_clock_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system reckons from the time of day when a process was started."""
    old = first_seen([os.getpid()])
    assert old is not None
    began = psutil.boot_time()
    monkeypatch.setattr("psutil._psplatform.boot_time", lambda: began + 3600.0)

    assert first_seen([os.getpid()]) == old
    assert first_seen([os.getppid()]) != old


def test_a_command_that_fails_changes_nothing() -> None:
    """The server serves as before, so it is not restarted."""
    server = Server()

    with pytest.raises(Refused, match="unlucky"):
        server.knobs().write({"intra_op": 7.0})

    assert len(server.restarts) == 1


def test_a_server_that_does_not_come_back() -> None:
    """The reason is passed on, and it is started again as it was."""
    server = Server()
    away: list[int] = []

    def serving() -> None:
        if server.values["inter_op"] == 3.0:
            away.append(1)
            raise Unreachable("nobody there")

    knobs = ThreadKnobs(server, server.flags, lambda: server.born, serving, 0.3)

    with pytest.raises(Refused, match=r"nobody there; .* load_timeout=2s in the target; the server runs"):
        knobs.write({"inter_op": 3.0})

    assert away
    assert server.values["inter_op"] == 0.0


def test_the_command_is_not_asked_while_the_server_is_away(
    command: Callable[..., RestartCommand], tmp_path: Path
) -> None:
    """Its process cannot be seen then, wherever it runs."""
    away: list[Exception] = []

    def serving() -> None:
        for error in away:
            raise error

    script = command(f"echo batch_threads=2 inter_op=0 intra_op=1; echo asked >> {tmp_path}/asked")
    knobs = ThreadKnobs(script, lambda: None, lambda: None, serving, 0.3)
    away.append(Unreachable("nobody there"))

    with pytest.raises(Unreachable, match="nobody there"):
        knobs.read()

    assert (tmp_path / "asked").read_text() == "asked\n"  # when it was opened


WAITS = """
import os, sys
if sys.argv[1] != "here":
    os.chroot(sys.argv[1])
    os.chdir("/")
print(flush=True)
sys.stdin.readline()
"""


@contextmanager
def process(folder: Path, root: str, file: str) -> Iterator[int]:
    """A process in a folder, or with that as its root, that names a file of batching parameters."""
    flags = ["--port=8500", "--tensorflow_intra_op_parallelism=1", f"--batching_parameters_file={file}"]
    with subprocess.Popen(
        [sys.executable, "-c", WAITS, root, *flags], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as started:
        assert started.stdout is not None
        started.stdout.readline()
        yield started.pid
        started.communicate(b"\n")


@pytest.mark.skipif(
    not Path("/proc/self/cwd").exists(), reason="this system does not show processes as files"
)
@pytest.mark.parametrize("file", ["batching.pbtxt", "/batching.pbtxt"])
def test_parameters_are_found_where_the_server_finds_them(tmp_path: Path, file: str) -> None:
    """In its own working folder, or below its own root, as in a container."""
    if file.startswith("/") and os.geteuid() != 0:
        pytest.skip("only root can give a process a root of its own")
    (tmp_path / "batching.pbtxt").write_text("num_batch_threads { value: 2 }")
    root = str(tmp_path) if file.startswith("/") else "here"

    with process(tmp_path, root, file) as pid:
        flags = read_flags([pid])
        assert flags is not None
        assert threads(flags) == NOW


def test_the_command_says_what_cannot_be_read(command: Callable[..., RestartCommand], tmp_path: Path) -> None:
    """The server's process is seen, but not the file of its parameters."""
    script = command("echo batch_threads=2 inter_op=0 intra_op=1")
    flags = {"port": "8500", "batching_parameters_file": f"{tmp_path}/away.pbtxt"}

    knobs = ThreadKnobs(script, lambda: flags, lambda: 1.0, lambda: None, 0.3)

    assert knobs.read() == NOW


def test_restoring() -> None:
    """To what was found."""
    server = Server()
    knobs = server.knobs()
    knobs.write({"inter_op": 3.0})

    assert knobs.restore()
    assert not knobs.restore()
    assert server.values["inter_op"] == 0.0

"""The kernel's files about waiting, in a folder that looks like /proc."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from tuner.profiler.kernel import ControlGroup, RunQueue, children

PRESSURE = "some avg10=4.78 avg60=10.40 avg300=11.58 total={}\nfull avg10=0.00 avg60=0.00 total=0\n"


def thread(proc: Path, process: int, name: int, text: str) -> None:
    folder = proc / str(process) / "task" / str(name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schedstat").write_text(text)


def end(proc: Path, process: int, name: int) -> None:
    folder = proc / str(process) / "task" / str(name)
    (folder / "schedstat").unlink()
    folder.rmdir()


def test_children_of_all_threads(tmp_path: Path) -> None:
    """A process that has ended has none."""
    for name, text in ((7, "12 13 "), (8, ""), (9, "14 ")):
        thread(tmp_path, 7, name, "")
        (tmp_path / "7" / "task" / str(name) / "children").write_text(text)

    assert sorted(children(7, tmp_path) or []) == [12, 13, 14]
    assert children(8, tmp_path) == []


def test_some_kernels_keep_no_lists_of_children(tmp_path: Path) -> None:
    """That is not to have none."""
    thread(tmp_path, 7, 7, "0 0 0")

    assert children(7, tmp_path) is None


def test_threads_are_added_up(tmp_path: Path) -> None:
    """Of all processes; ns become s."""
    thread(tmp_path, 7, 7, "1000000000 500000000 12\n")
    thread(tmp_path, 7, 8, "2000000000 250000000 3\n")
    thread(tmp_path, 9, 9, "0 250000000 3\n")

    assert RunQueue(tmp_path).read([7, 9]) == pytest.approx((3.0, 1.0))


def test_threads_come_and_go(tmp_path: Path) -> None:
    """What an ended thread had counts on, also if its id is given to another one; sums never fall."""
    queue = RunQueue(tmp_path)
    thread(tmp_path, 7, 7, "1000000000 0 1")
    thread(tmp_path, 7, 8, "3000000000 2000000000 1")
    thread(tmp_path, 7, 9, "5000000000 1000000000 1")
    first = queue.read([7])
    end(tmp_path, 7, 8)
    thread(tmp_path, 7, 9, "1000000000 0 1")
    thread(tmp_path, 7, 10, "500000000 500000000 1")

    assert first == pytest.approx((9.0, 3.0))
    assert queue.read([7]) == pytest.approx((10.5, 3.5))
    assert queue.read([7]) == pytest.approx((10.5, 3.5))


@pytest.mark.parametrize("text", ["", "0 0 0 and more\n", "garbage\n", "-5 3 1\n"])
def test_files_of_another_form_are_no_error(tmp_path: Path, text: str) -> None:
    """A thread that cannot be read does not count; without any, nothing is known."""
    thread(tmp_path, 7, 7, text)
    ran, waited = RunQueue(tmp_path).read([7])

    assert (ran, waited) == (0.0, 0.0) if text.startswith("0 0") else math.isnan(ran) and math.isnan(waited)


def test_a_process_that_is_gone_is_unknown(tmp_path: Path) -> None:
    """So is a machine without these files."""
    assert all(math.isnan(value) for value in RunQueue(tmp_path).read([1, 2]))


def test_this_process_can_be_read() -> None:
    """The real files of this machine, where there are any."""
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("this kernel does not count waiting")
    ran, waited = RunQueue().read([os.getpid()])

    assert ran > 0
    assert waited >= 0


def machine(tmp_path: Path, cgroup: str) -> tuple[Path, Path]:
    """A machine on which process 7 is in a group; returns its /proc and where cgroup v2 is mounted."""
    proc, mount = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "7").mkdir(parents=True)
    (proc / "7" / "cgroup").write_text(cgroup)
    (proc / "pressure").mkdir()
    (proc / "pressure" / "cpu").write_text(PRESSURE.format(9_000_000))
    (mount / "pods" / "triton").mkdir(parents=True)
    (mount / "pods" / "triton" / "cpu.pressure").write_text(PRESSURE.format(2_500_000))
    stat = "usage_usec 1\nnr_periods 5\nnr_throttled 2\nthrottled_usec 1500000\n"
    (mount / "pods" / "triton" / "cpu.stat").write_text(stat)
    return proc, mount


def test_pressure_and_throttling_of_a_group(tmp_path: Path) -> None:
    """Us become s; groups of version 1 beside it do not count."""
    proc, mount = machine(tmp_path, "3:cpuset:/\n0::/pods/triton\n")
    group = ControlGroup(7, proc=proc, mount=mount)

    assert (group.pressure(), group.throttled()) == (2.5, 1.5)


def test_the_least_quota_of_a_group_and_those_above_it_counts(tmp_path: Path) -> None:
    """A pod may have less than its containers were promised; without any quota, nothing bounds them."""
    proc, mount = machine(tmp_path, "0::/pods/triton\n")
    group = ControlGroup(7, proc=proc, mount=mount)
    assert group.quota() == math.inf

    (mount / "pods" / "triton" / "cpu.max").write_text("max 100000\n")
    (mount / "pods" / "cpu.max").write_text("250000 100000\n")
    assert group.quota() == 2.5

    (mount / "pods" / "triton" / "cpu.max").write_text("50000 100000\n")
    assert group.quota() == 0.5


@pytest.mark.parametrize("cgroup", ["0::/\n", "2:cpu:/pods/triton\n", "", "0::/pods/unknown\n"])
def test_without_a_group_pressure_is_the_machines(tmp_path: Path, cgroup: str) -> None:
    """And nothing is known of throttling."""
    proc, mount = machine(tmp_path, cgroup)
    group = ControlGroup(7, proc=proc, mount=mount)

    assert group.pressure() == 9.0
    assert math.isnan(group.throttled())


def test_in_a_container_the_root_is_the_containers_group(tmp_path: Path) -> None:
    """There the process is in the root, as far as can be seen, and the root has files of its own."""
    proc, mount = machine(tmp_path, "0::/\n")
    (mount / "cpu.pressure").write_text(PRESSURE.format(4_000_000))
    (mount / "cpu.stat").write_text("throttled_usec 500000\n")
    group = ControlGroup(7, proc=proc, mount=mount)

    assert (group.pressure(), group.throttled()) == (4.0, 0.5)


def test_a_machine_without_any_of_it(tmp_path: Path) -> None:
    """Old kernels and other systems: everything is NaN."""
    group = ControlGroup(None, proc=tmp_path, mount=tmp_path)

    assert math.isnan(group.pressure())
    assert math.isnan(group.throttled())
    assert group.quota() == math.inf

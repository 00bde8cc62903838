"""Bad input: one clear error that names the setting and the fix, exit code 2, nothing left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import Say


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["run", "sim://mlp", "--slo", "fast"], "--slo"),
        (["run", "sim://mlp", "--slo", "p95=0ms"], "--slo"),
        (["run", "sim://mlp", "--slo", "p77=3ms"], "mean, p50, p95, p99"),
        (["run", "sim://mlp", "--slo", "p95=30ms", "--objective", "speed"], "--objective"),
        (["run", "sim://mlp", "--slo", "p95=30ms", "--window", "1ms"], "--window"),
        (["run", "sim://mlp", "--slo", "p95=30ms", "--knob", "max_batch_size"], "--knob"),
        (["run", "sim://mlp", "--slo", "p95=30ms", "--knob", "threads=1,2"], "knob threads"),
        (["run", "sim://mlp", "--slo", "p95=30ms", "--knob", "max_batch_size=0,4"], "knob max_batch_size"),
        (["run", "sim://mlp", "--slo", "p95=30ms", "--shape", "image=3,x"], "--shape"),
        (["sweep", "sim://mlp", "--rate", "9", "--shape", "a=1", "--shape", "a=2"], "--shape a"),
        (["run", "sim://resnet", "--slo", "p95=30ms"], "models loaded: mlp"),
        (["run", "sim://mlp", "--slo", "p95=30ms", "--objective", "gpu"], "no GPU can be seen"),
        (["run", "ftp://mlp", "--slo", "p95=30ms"], "sim://"),
        (["run", "sim://mlp?speed=3", "--slo", "p95=30ms"], "'speed'"),
        (["observe", "triton://127.0.0.1:1/mlp"], "127.0.0.1:1"),
        (["sweep", "sim://mlp", "--grid", "max_batch_size=1,4"], "--rate"),
        (["sweep", "sim://mlp", "--rate", "100", "--grid", "max_batch_size=4,x"], "--grid max_batch_size"),
        (["train", "--out", "p", "--env", "CartPole-v1"], "--env"),
        (["train", "--out", "p", "--env", "tuner/Nowhere-v0"], "tuner/TritonCPU-v0"),
        (["train", "--out", "p", "--server", "missing.json"], "missing.json"),
        (["train", "--out", "p", "--agent", "nobody"], "q_learning"),
        (["train", "--out", "p", "--agent", "rrl:delta"], "PARAMETER=VALUE"),
        (["train", "--out", "p", "--agent", "rrl:speed=1"], "caution"),
        (["train", "--out", "p", "--agent", "rrl:delta=2"], "it is a parameter of rrl_paper"),
        (["train", "--out", "p", "--agent", "rrl_paper:caution=2"], "it is a parameter of rrl\n"),
        (["train", "--out", "p", "--agent", "rrl_paper:delta=-1"], "got delta=-1"),
        (["train", "--out", "p", "--agent", "rrl_paper:delta=inf"], "parameter delta: inf is not finite"),
        (["train", "--out", "p", "--env", "tuner/Cluster-v0", "--slo", "p95=3ms"], "--slo: means nothing"),
        (["compare", "--agents", "rrl,nobody", "--env", "tuner/TritonCPU-v0"], "q_learning"),
        (["compare", "--agents", "rrl,rrl", "--env", "tuner/TritonCPU-v0"], "given twice"),
        (["compare", "--agents", ",", "--env", "tuner/TritonCPU-v0"], "--agents"),
        (["compare", "--env", "tuner/Nowhere-v0", "--agents", "rrl"], "tuner/Cluster-v0"),
        (["compare", "--env", "tuner/TritonCPU-v0", "--window", "1h"], "--window"),
        (["evaluate", "missing"], "policy missing"),
        (["train", "--out", "p", "--seed", "-1"], "--seed"),
        (["compare", "--seed", "-1"], "--seed"),
        (["evaluate", "missing", "--seed", "-1"], "--seed"),
        (["workload", "show", "wikipedia", "--seed", "-1"], "--seed"),
        (["run", "sim://mlp?seed=-1", "--slo", "p95=30ms"], "seed"),
        (["train", "--out", "p", "--objective", "gpu"], "mlp has no GPU"),
        (["train", "--out", "p", "--rate", "1e6", "--windows", "2"], "at most 100,000 requests/s"),
        (["train", "--out", "p", "--rate", "1e9"], "--rate"),
        (["train", "--out", "p", "--windows", "1000000000"], "--windows"),
        (["compare", "--objective", "gpu", "--env", "tuner/TFServingCPU-v0"], "has no GPU"),
        (["experiment", "run", "nothing"], "triton-sweep"),
        (["report", "missing"], "report.json"),
        (["demo", "--simulated", "--rates", "0", "100"], "--rates"),
    ],
)
def test_mistakes_are_named(fails: Say, tmp_path: Path, arguments: list[str], names: str) -> None:
    """The message holds the setting or the fix."""
    said = fails(*arguments)

    assert names in said


def test_an_unwritable_run_folder_is_named_before_anything_starts(fails: Say, tmp_path: Path) -> None:
    """A file stands where the run's folder should be."""
    (tmp_path / "taken").write_text("")

    said = fails(
        "run",
        "sim://mlp",
        "--slo",
        "p95=30ms",
        "--windows",
        "1",
        "--out",
        str(tmp_path / "taken"),
    )

    assert "--out" in said


def test_a_corrupt_policy_is_named(fails: Say, tmp_path: Path) -> None:
    """A damaged policy is refused before the server is touched."""
    policy = tmp_path / "policy"
    policy.mkdir()
    (policy / "policy.json").write_text("{")

    said = fails(
        "run",
        "sim://mlp",
        "--slo",
        "p95=30ms",
        "--policy",
        str(policy),
        "--out",
        str(tmp_path / "o"),
    )

    assert "policy" in said


def test_the_reader_may_close_the_pipe(tmp_path: Path) -> None:
    """`tuner observe ... | head -1` ends without a traceback."""
    command = f"{sys.executable} -m tuner observe sim://mlp --every 1s --count 2000 | head -1"

    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, check=False)

    assert "Traceback" not in done.stderr

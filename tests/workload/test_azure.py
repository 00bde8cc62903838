"""Recorded traces as workloads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tuner.errors import InvalidInput
from tuner.workload import workload
from tuner.workload.recorded import gap_shape

HEADING = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
PUBLIC = Path(__file__).parents[3] / "shared" / "data" / "azure_llm_2023"


def written(folder: Path, seconds: np.ndarray | list[int], name: str = "trace.csv") -> Path:
    """A trace file with requests at given seconds after 18:17."""
    lines = [
        f"2023-11-16 18:{17 + int(s // 60):02d}:{s % 60:010.7f},100,{10 + i}\r\n"
        for i, s in enumerate(seconds)
    ]
    path = folder / name
    path.write_text(HEADING + "".join(lines))
    return path


def rates(spec: str, windows: int, rate: float = 100.0) -> np.ndarray:
    """Rates of an episode."""
    return workload(spec, rate).rates(windows, np.random.default_rng(0))


def test_the_rate_follows_the_trace_and_its_mean_is_nominal(tmp_path: Path) -> None:
    """Twice the requests in the second half of the file: twice the rate in the second half of the episode."""
    seconds = np.concatenate((np.linspace(0, 600, 400, endpoint=False), np.linspace(600, 1200, 800)))
    found = rates(f"azure:{written(tmp_path, seconds)}", 10)

    assert found.mean() == pytest.approx(100)
    np.testing.assert_allclose(found, [66.67] * 5 + [133.33] * 5, rtol=0.02)


def test_windows_of_few_requests_show_no_luck(tmp_path: Path) -> None:
    """With fewer than 20 requests to a window, wider pieces of the trace are counted."""
    seconds = np.sort(np.random.default_rng(1).uniform(0, 1000, 400))
    found = rates(f"azure:{written(tmp_path, seconds)}", 400)

    assert found.shape == (400,)
    assert found.std() / found.mean() < 1.3 / np.sqrt(20)
    assert np.abs(np.diff(found)).max() < 10


def test_bursts_are_those_of_the_trace_unless_given(tmp_path: Path) -> None:
    """Gamma distributed gaps are recognised in spite of a rate that changes."""
    generator = np.random.default_rng(2)
    gaps = generator.gamma(0.4, 1 / 0.4, 20_000)
    gaps[10_000:] *= 5

    assert gap_shape(gaps) == pytest.approx(0.4, rel=0.1)
    assert gap_shape(np.ones(100)) == 100
    assert gap_shape(np.zeros(5)) == 1
    path = written(tmp_path, np.cumsum(gaps[:500]) / 4)
    assert workload(f"azure:{path}", 5.0).burstiness == pytest.approx(0.4, rel=0.3)
    assert workload(f"azure:{path},burstiness=2", 5.0).burstiness == 2


def test_it_prints_as_the_spec_that_makes_it(tmp_path: Path) -> None:
    """Commas in the file's name do no harm."""
    one = workload(f"azure:{written(tmp_path, [0, 1, 5], 'a,b.csv')}", 5.0)

    assert workload(str(one), 5.0) == one


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "holds no times"),
        ("time,a,b\n", "line 1: is not the heading TIMESTAMP,ContextTokens,GeneratedTokens"),
        (HEADING, "holds no times"),
        (f"{HEADING}2023-11-16 18:17:03.97,1,2\n", "two different times"),
        (f"{HEADING}2023-11-16 18:17:03.97,1,2\nyesterday,1,2\n", "line 3: 'yesterday' is not a time"),
        (f"{HEADING}2023-11-16 18:17:03.97,1\n", "line 2: has 2 fields, not 3"),
        (f"{HEADING}2023-11-16 18:17:03.97,1,-2\n", "line 2: GeneratedTokens '-2' is not a number"),
        (f"{HEADING}2023-11-16 18:17:04,1,2\n2023-11-16 18:17:03,1,2\n", "line 3 goes back: 1 s before"),
        (f"{HEADING}2023-11-16 18:17:04,1,2\n\udcff\udcfe,1,2\n", r"line 3: '\xff\xfe' is not a time"),
    ],
)
def test_an_unreadable_line_is_told_with_its_number(tmp_path: Path, text: str, names: str) -> None:
    """One error, which names the file, too."""
    path = tmp_path / "trace.csv"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")

    with pytest.raises(InvalidInput) as raised:
        workload(f"azure:{path}", 5.0)

    assert names in str(raised.value)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ("azure", "names no file"),
        ("azure:,burstiness=1", "names no file"),
        ("azure:/nowhere.csv", "No such file"),
    ],
)
def test_a_missing_file_is_told(spec: str, names: str) -> None:
    """With how to name one."""
    with pytest.raises(InvalidInput, match=names):
        workload(spec, 5.0)


@pytest.mark.parametrize(("name", "shape", "highest"), [("code", 0.38, 12), ("conv", 0.93, 2.2)])
def test_the_public_traces_can_be_read(name: str, shape: float, highest: float) -> None:
    """Coding comes in bursts, chatting steadily."""
    path = PUBLIC / f"AzureLLMInferenceTrace_{name}.csv"
    if not path.exists():
        pytest.skip(f"{path.name} is not here")
    one = workload(f"azure:{path}", 14.0)
    found = one.rates(300, np.random.default_rng(0)) / 14

    assert found.mean() == pytest.approx(1, rel=0.01)
    assert found.max() < highest
    assert one.burstiness == pytest.approx(shape, abs=0.01)

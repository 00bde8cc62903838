"""CPU saved by ``--objective cpu`` under a 40 ms SLO on p95, against the latency-optimal configuration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tuner.agents.rrl import RRL
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Row, row
from tuner.experiments.live.testbed import drive, objective, triton
from tuner.laboratory.calibration import measure_server_model, train_in_simulation
from tuner.profiler.attachment import Attachment

__all__ = ["CpuSaved"]

RATE, SLO, WINDOW, WINDOWS = 140.0, 0.040, 4.0, 16


class TunedServer(NamedTuple):
    """Where tuning left a server, and how it serves then."""

    configuration: str
    cpu: float
    """Cores."""
    p95: float
    """s"""


@experiment(
    name="triton-cpu",
    title="CPU saved by --objective cpu under a 40 ms SLO",
    minutes=8,
    live=True,
    foreign_limit=True,
)
class CpuSaved(Experiment[str, TunedServer]):
    """Tunes fresh servers for latency and for CPU, and measures where each ends."""

    windows = Scaled(WINDOWS, quick=3)
    check = Scaled(10.0, quick=2.0)
    """Length of the window that counts, s."""

    def tasks(self) -> tuple[str, str]:
        return ("latency", "cpu")

    def measure(self, goal: str, seed: int) -> TunedServer:
        quick, limit = self.options.quick, self.options.foreign_limit
        with triton(RATE, seed=seed, quick=quick, foreign_limit=limit) as attachment:
            ended = _tune(attachment, goal, seed, self.windows)
            measurement = attachment.profiler.measure(self.check, settle=2.0)
        found = TunedServer(ended, measurement.cpu, measurement.latency_p95)
        self.report(f"{goal} seed {seed}: {ended}: {found.cpu:.2f} cores, {1e3 * found.p95:.1f} ms")
        return found

    def rows(self, found: Answers[str, TunedServer]) -> Iterator[Row]:
        pairs = zip(found["cpu"], found["latency"], strict=True)
        saved = [100 * (1 - ours.cpu / theirs.cpu) for ours, theirs in pairs]
        yield row("CPU saved", saved, unit="%", published=25.0, note="target: at least")
        for goal, servers in found.items():
            yield row(f"CPU, {goal}-optimal", [each.cpu for each in servers], unit="cores")
        yield row("p95, latency-optimal", [1e3 * each.p95 for each in found["latency"]], unit="ms")
        p95 = [1e3 * each.p95 for each in found["cpu"]]
        yield row("p95, cpu-optimal", p95, unit="ms", published=SLO * 1e3, note="target: at most")

    def configuration(self) -> dict[str, Any]:
        return {"rate": RATE, "slo_ms": SLO * 1e3, "window": WINDOW, "windows": WINDOWS}

    def details(self, found: Answers[str, TunedServer]) -> dict[str, Any]:
        return {"ended": {goal: [each.configuration for each in servers] for goal, servers in found.items()}}


def _tune(attachment: Attachment, goal: str, seed: int, windows: int) -> str:
    """Tune warm from simulation, and leave the server with the best; return it in words."""
    aim = objective(attachment, slo=SLO, goal=goal)
    model, _ = measure_server_model(attachment, 3.0)
    agent: RRL = train_in_simulation(model, aim, rates=[RATE], space=attachment.space, seed=seed)
    driver = drive(attachment, aim, agent, window=WINDOW)
    for _ in range(windows):
        driver.step()
    left = driver.finish()
    agent.close()
    return attachment.space.format(left)

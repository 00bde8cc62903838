"""CPU saved by ``--objective cpu`` under a 40 ms SLO on p95, against the latency-optimal configuration."""

from __future__ import annotations

from tuner.agents.rrl import RRL
from tuner.control import ControlLoop, Driver, Watched
from tuner.experiments.frame.catalogue import Options
from tuner.experiments.frame.result import Result, row
from tuner.experiments.live.testbed import objective, triton
from tuner.laboratory.calibration import measure_server_model, train_in_simulation
from tuner.profiler.attachment import Attachment

__all__ = ["run"]

RATE, SLO, WINDOW, WINDOWS, CHECK = 140.0, 0.040, 4.0, 16, 10.0


def run(options: Options) -> Result:
    """Tune once for latency and once for CPU on fresh servers, and measure where each ends."""
    cpu: dict[str, list[float]] = {"latency": [], "cpu": []}
    p95: dict[str, list[float]] = {"latency": [], "cpu": []}
    ended: dict[str, list[str]] = {"latency": [], "cpu": []}
    for seed in range(options.seeds):
        for goal in ("latency", "cpu"):
            with triton(RATE, seed=seed, quick=options.quick) as attachment:
                ended[goal].append(_tune(attachment, goal, seed, 3 if options.quick else WINDOWS))
                measurement = attachment.profiler.measure(2.0 if options.quick else CHECK, settle=2.0)
            cpu[goal].append(measurement.cpu)
            p95[goal].append(measurement.latency_p95 * 1e3)
            options.report(
                f"{goal} seed {seed}: {ended[goal][-1]}: {cpu[goal][-1]:.2f} cores, {p95[goal][-1]:.1f} ms"
            )
    saved = [1 - c / latency for c, latency in zip(cpu["cpu"], cpu["latency"], strict=True)]
    return Result(
        experiment="triton-cpu",
        seeds=options.seeds,
        configuration={"rate": RATE, "slo_ms": SLO * 1e3, "window": WINDOW, "windows": WINDOWS},
        rows=[
            row("CPU saved", [s * 100 for s in saved], unit="%", published=25.0, note="target: at least"),
            row("CPU, latency-optimal", cpu["latency"], unit="cores"),
            row("CPU, cpu-optimal", cpu["cpu"], unit="cores"),
            row("p95, latency-optimal", p95["latency"], unit="ms"),
            row("p95, cpu-optimal", p95["cpu"], unit="ms", published=SLO * 1e3, note="target: at most"),
        ],
        details={"ended": ended},
    )


def _tune(attachment: Attachment, goal: str, seed: int, windows: int) -> str:
    """Tune warm from simulation, and leave the server with the best; return it in words."""
    aim = objective(attachment, slo=SLO, goal=goal)
    model, _ = measure_server_model(attachment, 3.0)
    agent: RRL = train_in_simulation(model, aim, rates=[RATE], space=attachment.space, seed=seed)
    loop = ControlLoop(attachment.space, aim, agent)
    driver = Driver(Watched(attachment.backend, attachment.profiler, attachment.clock), loop, window=WINDOW)
    for _ in range(windows):
        driver.step()
    left = driver.finish()
    agent.close()
    return attachment.space.format(left)

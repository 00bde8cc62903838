"""Fifty live reconfigurations under load: how many requests fail, and what the worst waits for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np

from tuner.experiments.frame.catalogue import Options
from tuner.experiments.frame.result import Result, row
from tuner.experiments.live.testbed import distinct
from tuner.profiler.attachment import Attachment

__all__ = ["reconfigure"]

Bench = Callable[[int], AbstractContextManager[Attachment]]


def reconfigure(name: str, rate: float, bench: Bench, options: Options) -> Result:
    """Change a server's configuration at random, and count.

    Args:
        name: Of the experiment.
        rate: The load, requests/s.
        bench: Starts a fresh server under that load, given a seed.
        options: How much.
    """
    changes = 5 if options.quick else 50
    failed, reload_seconds, worst, sent = [], [], [], []
    for seed in range(options.seeds):
        generator = np.random.default_rng(seed)
        with bench(seed) as attachment:
            # Without batching the server cannot serve the load: that would measure overload.
            able = [c for c in distinct(attachment) if c["max_batch_size"] >= 4]
            done = 0
            while done < changes:
                configuration = able[int(generator.integers(len(able)))]
                begin = attachment.clock.now()
                report = attachment.backend.apply(configuration)
                if not report.changed:
                    continue
                done += 1
                attachment.clock.sleep(1.0)
                assert attachment.load is not None, "the bench sends a load of its own"
                sample = attachment.load.sample(begin, begin + report.seconds + 1.0)
                reload_seconds.append(report.seconds)
                worst.append(float(np.nanmax(sample.latency)))
                text = attachment.space.format(configuration)
                options.report(f"{done}/{changes}  {text}  {report.seconds * 1e3:.0f} ms")
            attachment.clock.sleep(2.0)
            bad, all_sent = attachment.request_totals(())
            failed.append(float(bad))
            sent.append(float(all_sent))
    return Result(
        experiment=name,
        seeds=options.seeds,
        configuration={"rate": rate, "changes": changes},
        rows=[
            row("failed requests", failed, published=0.0, note=f"in {changes} reconfigurations"),
            row("requests sent", sent),
            row("time of a change", [s * 1e3 for s in reload_seconds], unit="ms"),
            row("worst latency from a change to a second after it", [s * 1e3 for s in worst], unit="ms"),
        ],
    )

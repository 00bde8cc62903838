"""Plain twin of `clipper`."""

from __future__ import annotations

from collections import defaultdict

from tests.scheduling.batching.naive_timeout import NaiveCluster
from tuner.scheduling.batching.clipper import ClipperOptions
from tuner.scheduling.cluster import ClusterSpec


class NaiveClipper(NaiveCluster):
    """Twin of :mod:`tuner.scheduling.batching.clipper`."""

    def __init__(self, spec: ClusterSpec, options: ClipperOptions) -> None:
        super().__init__(spec)
        self.options = options
        everywhere = tuple(range(len(spec.kinds)))
        self.homes = options.assignment or (everywhere,) * len(spec.sessions)
        self.limit: dict[tuple[int, int], float] = defaultdict(lambda: 1.0)
        self.rates: dict[tuple[int, int], list[float]] = defaultdict(list)

    def ended(self, accelerator: int, session: int, size: int, took: float) -> None:
        key = session, self.spec.kinds[accelerator]
        objective = self.options.share * (self.spec.sessions[session].slo - self.spec.delays.response)
        if took > objective:
            self.limit[key] = max(1.0, self.limit[key] * (1.0 - self.options.decrease))
        elif size >= int(self.limit[key]):
            largest = self.spec.sessions[session].latency.shape[1] - 1
            self.limit[key] = min(self.limit[key] + self.options.increase, largest)
        self.rates[key].append(size / took)

    def settle(self) -> None:
        for accelerator in self.idle():
            while accelerator not in self.busy:
                waiting = [
                    (queue[0].arrival, session)
                    for session, queue in enumerate(self.queues)
                    if queue and accelerator in self.homes[session]
                ]
                if not waiting:
                    break
                self.serve(min(waiting)[1], accelerator)

    def serve(self, session: int, accelerator: int) -> None:
        late = self.late(session)
        if late:
            self.drop(session, late)
        if self.queues[session]:
            self.send(session, self.size(session, accelerator), accelerator)

    def size(self, session: int, accelerator: int) -> int:
        key = session, self.spec.kinds[accelerator]
        largest = self.spec.sessions[session].latency.shape[1] - 1
        left = self.deadline(session, self.queues[session][0]) - self.now
        if self.options.sizing == "aimd":
            size = int(min(self.limit[key], largest))
        elif self.options.sizing == "throughput":
            recent = self.rates[key][-self.options.window :]
            size = int(min(left * sum(recent) / max(len(recent), 1), largest))
        else:
            delays = self.spec.delays
            fits = [
                size
                for size in range(1, largest + 1)
                if delays.data * size + self.latency(session, size, accelerator) <= left - delays.control
            ]
            size = max(fits, default=1)
        return min(max(size, 1), len(self.queues[session]))

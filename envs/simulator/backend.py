"""The simulated Triton as a backend: one object that is server, clients, clock and machine at once.

An ordinary profiler measures it like a live server: it is a
:class:`~tuner.adapters.backend.Backend` and also the ``Clock``, ``Clients`` and ``Host`` of
:mod:`tuner.profiler.source`, so that all of them live in one virtual time.

Configurations equal in effect read back alike: with ``max_batch_size`` 1 the delay reads 0, as in Triton,
where batching is then off. ``space.effective`` gives what a configuration reads back as.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from tuner.adapters.backend import ApplyReport, Counters, Description
from tuner.adapters.connection.address import Option, parameters
from tuner.adapters.live.knobs import BATCH_GRID, DELAY_GRID, KnobKind, batch_kind, check, delay_kind
from tuner.adapters.triton.configuration import DELAY, INSTANCES
from tuner.adapters.triton.configuration import MAX_BATCH_SIZE as MAX_BATCH
from tuner.envs.simulator.server import MODELS, ServerModel
from tuner.envs.simulator.world import Neighbour, World, batching_of
from tuner.errors import InvalidInput, UnknownModel
from tuner.knobs import ApplyCost, Configuration, KnobSpace, Role
from tuner.profile import BatchingProfile, fit_profile
from tuner.profiler.source import ClientSample, HostReading
from tuner.workload.schedule import RateSchedule, parse_schedule

__all__ = [
    "DELAY",
    "INSTANCES",
    "LONGEST_DELAY",
    "MAX_BATCH",
    "MOST_INSTANCES",
    "SimulatedTriton",
    "connect",
    "triton_space",
]

LARGEST_BATCH = 1024
MOST_INSTANCES = 64
LONGEST_DELAY = 60.0
"""Of a batch that waits for more requests, s: longer than live servers, for slow ones of the training."""
OPTIONS = {
    "rate": Option("200", "requests/s; `0:150,60:300` are 300 from second 60 on"),
    "seed": Option("0", "of arrivals and noise"),
    "server": Option("", "file of a server model, from `tuner calibrate`"),
    "cores": Option("", "its cores, in the place of the model's"),
    "shape": Option(
        "1", "of the gamma distributed gaps between requests: 1 is Poisson, less comes in bursts"
    ),
    "foreign": Option("0", "cores that other processes use"),
    "period": Option("", "seconds, in the second half of each of which they do; all the time without it"),
}


class SimulatedTriton:
    """A simulated Triton; it begins with the default configuration at virtual time 0.

    Time passes in ``sleep`` and ``apply``, and in ``sample`` while answers are outstanding.

    Args:
        server: What the server is like.
        schedule: The offered rate.
        seed: Of arrivals and noise.
        grids: Grids that replace the default ones, by knob name.
        shape: Of the gamma distributed gaps between requests; 1 is Poisson.
        target: What :meth:`describe` calls it.

    Raises:
        InvalidInput: A grid is unusable.
    """

    def __init__(
        self,
        server: ServerModel,
        schedule: RateSchedule,
        *,
        seed: int = 0,
        grids: Mapping[str, tuple[float, ...]] | None = None,
        shape: float = 1.0,
        target: str = "sim://mlp",
    ) -> None:
        self._space = triton_space(server, grids)
        largest = int(max(*self._space.knobs[0].grid, 32))
        self._kinds = _kinds(largest, MOST_INSTANCES)
        self._world = World(
            server, schedule, seed=seed, largest=largest, instances=MOST_INSTANCES, shape=shape
        )
        self._target = target
        self._grids, self._schedule, self._shape = grids, schedule, shape
        self._world.configure(batching_of(self._space.effective(self._space.default)), fresh=False)

    @property
    def space(self) -> KnobSpace:
        """The knobs of Triton's dynamic batcher."""
        return self._space

    @property
    def server(self) -> ServerModel:
        """What is simulated."""
        return self._world.server

    @property
    def neighbour(self) -> Neighbour:
        """The foreign processes on its machine; assign to have others there from now on."""
        return self._world.neighbour

    @neighbour.setter
    def neighbour(self, neighbour: Neighbour) -> None:
        self._world.neighbour = neighbour

    @property
    def slowdown(self) -> float:
        """Factor on the execution times; assign to let the machine become slower or faster."""
        return self._world.slowdown

    @slowdown.setter
    def slowdown(self, factor: float) -> None:
        self._world.slowdown = factor

    def reseeded(self, seed: int) -> SimulatedTriton:
        """Return the same server and machine under the same load at time 0, with other random numbers."""
        other = SimulatedTriton(
            self.server, self._schedule, seed=seed, grids=self._grids, shape=self._shape, target=self._target
        )
        other.neighbour, other.slowdown = self.neighbour, self.slowdown
        return other

    @property
    def rate(self) -> float:
        """The load offered now, requests/s."""
        return self._world.rate

    def set_rate(self, rate: float) -> None:
        """Offer another load from now on, requests/s.

        Raises:
            InvalidInput: It is not positive.
        """
        self.offer(RateSchedule.constant(rate))

    def offer(self, schedule: RateSchedule) -> None:
        """Offer another load from now on; the schedule's time 0 is now."""
        self._schedule = schedule
        self._world.offer(schedule)

    # Backend

    def describe(self) -> Description:
        """Return who this is."""
        return Description(
            target=self._target,
            server="simulated-triton",
            version="1",
            model=self.server.name,
            writable=True,
            quantiles=False,
            notes=("simulated: time is virtual and the clients are part of the simulation",),
        )

    def current(self) -> Configuration:
        """Return what the simulated server runs."""
        batching = self._world.batching
        return Configuration(
            max_batch_size=float(batching.max_batch),
            max_queue_delay=batching.delay,
            instances=float(batching.instances),
        )

    def apply(self, configuration: Configuration) -> ApplyReport:
        """Change the configuration, which takes virtual time and cores; no request is lost.

        Raises:
            InvalidInput: A knob is unknown, missing, or has an unusable value; values off the grid are fine.
        """
        check(self._space, configuration, self._kinds.__getitem__)
        wanted, old = self._space.effective(configuration), self.current()
        cost = self._space.apply_cost(old, wanted)
        if cost is ApplyCost.FREE:
            return ApplyReport.unchanged(old)
        seconds = self.server.reload_seconds
        self._world.disturb(self.server.reload_cores, seconds)
        self._world.advance(seconds)  # the old instances serve until the new ones are ready
        self._world.configure(batching_of(wanted), fresh=True)
        return ApplyReport(
            configuration=self.current(),
            changed=True,
            cost=cost,
            seconds=seconds,
            settle=self.server.settle_seconds,
        )

    def counters(self) -> Counters:
        """Return the totals since time 0."""
        return self._world.counters()

    def profile(self) -> BatchingProfile | None:
        """Return l(b) over everything since time 0."""
        totals = self._world.totals
        return fit_profile(totals.batch_counts, totals.batch_seconds)

    def close(self) -> None:
        """Nothing is held open."""

    # Clock

    def now(self) -> float:
        """Virtual seconds since the beginning."""
        return self._world.now

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        self._world.advance(seconds)

    # Clients

    def sample(self, start: float, end: float) -> ClientSample:
        """Return the requests sent in ``[start, end)``; waits at most 1 s for outstanding answers."""
        return self._world.sample(start, end)

    # Host

    @property
    def cores(self) -> float:
        """CPU cores of the simulated machine."""
        return self.server.cores

    def read(self) -> HostReading:
        """Read processor times; the load generator counts as our own process."""
        return self._world.read()


def triton_space(server: ServerModel, grids: Mapping[str, tuple[float, ...]] | None = None) -> KnobSpace:
    """Return the knobs of Triton's dynamic batcher: the same names, grids and costs as on a live server.

    Args:
        server: The number of its cores is the largest number of instances, up to 64.
        grids: Grids that replace the default ones.

    Raises:
        InvalidInput: A knob is unknown or a grid unusable.
    """
    known: dict[str, tuple[float, ...]] = {
        MAX_BATCH: BATCH_GRID,
        DELAY: DELAY_GRID,
        INSTANCES: tuple(float(n) for n in range(1, min(max(int(server.cores), 1), MOST_INSTANCES) + 1)),
    }
    for name in grids or {}:
        if name not in known:
            raise InvalidInput(f"knob {name}", "unknown", f"the simulated knobs are {', '.join(known)}")
    chosen = {**known, **(grids or {})}
    kinds = _kinds(LARGEST_BATCH, MOST_INSTANCES)
    return KnobSpace([kinds[name].knob(name, tuple(map(float, grid))) for name, grid in chosen.items()])


def _kinds(batch: int, instances: int) -> dict[str, KnobKind]:
    """Return the kind of each knob.

    Args:
        batch: Largest batch.
        instances: Most instances.
    """
    return {
        MAX_BATCH: batch_kind(batch),
        DELAY: replace(delay_kind(MAX_BATCH), most=LONGEST_DELAY),
        INSTANCES: KnobKind(least=1, most=instances, default=1.0, role=Role.PARALLELISM),
    }


def connect(target: str, grids: Mapping[str, tuple[float, ...]]) -> SimulatedTriton:
    """Open ``sim://MODEL?rate=200&seed=1&server=FILE.json&cores=2&shape=1&foreign=1&period=60``.

    ``rate`` may have steps (``0:150,60:300``: from second 60 on 300 requests/s), ``server`` is a file of
    :meth:`ServerModel.save <tuner.envs.simulator.server.ServerModel.save>`, ``cores`` overrides its cores
    and ``shape`` is that of gamma distributed gaps between requests (1 Poisson, below 1 bursts). Foreign
    processes use ``foreign`` cores: all the time, or in the second half of every ``period`` of seconds.

    Raises:
        InvalidInput: An option or grid is unusable, or the model is unknown and no file is given.
    """
    url = urlsplit(target)
    if url.netloc.lower() != (url.hostname or "") or url.path.strip("/") or url.fragment:
        raise InvalidInput("TARGET", f"'{target}' names more than a model", "write sim://mlp?rate=200")
    options = parameters(url, OPTIONS)
    if options["server"]:
        server = ServerModel.load(Path(options["server"]))
    elif (url.hostname or "") in MODELS:
        server = MODELS[url.hostname or ""]
    else:
        raise UnknownModel(url.hostname or "", tuple(MODELS))
    if options["cores"]:
        server = server.replace(cores=_number("cores", options["cores"]))
    simulated = SimulatedTriton(
        server,
        parse_schedule(options["rate"]),
        seed=int(_number("seed", options["seed"])),
        grids=grids,
        shape=_number("shape", options["shape"]),
        target=target,
    )
    period = _number("period", options["period"]) if options["period"] else math.inf
    simulated.neighbour = Neighbour(cores=_number("foreign", options["foreign"]), period=period)
    return simulated


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise InvalidInput(f"TARGET option {name}", f"'{text}' is not a number >= 0")
    return number

"""A made-up world: replicas of a server under a load, and all that can befall them, in virtual time.

Each configuration has its true latency under each load, so that one can say whether the SLO could be kept.
Some configurations are refused, some kill the server, under some its requests fail: always the same ones.
While there is trouble, servers restart, time out and refuse for a while, metrics go away, the load moves, and
somebody else deploys other settings. All randomness comes from one `random.Random`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np

from tests.builders import SPACE, measurement
from tuner.adapters.backend import ApplyReport, Counters, Description
from tuner.adapters.replicas.group import ReplicaGroup
from tuner.adapters.replicas.membership import Membership
from tuner.errors import InvalidInput, Refused, TimedOut, Unreachable
from tuner.knobs import ApplyCost, Configuration, KnobSpace
from tuner.measurement import UNANSWERED, Measurement

SLO = 0.030
"""Bound on the p95, s."""
LARGEST = 16.0
"""Largest batch that a server takes from us; people can deploy more."""


class Killed(BaseException):
    """The process of the daemon is killed: nothing that it does any more reaches anybody."""


class Replica:
    """One server, as its adapter shows it.

    Attributes:
        setter: Who made it run what it runs: ``ours``, ``others``, or ``boot`` after a restart.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.space = world.space
        self.running = world.home
        self.setter = "boot"
        self.away_until = -math.inf
        self.born = 0.0
        self.served = self.failed = 0
        self.latency = 0.0
        self.late: tuple[float, Configuration] | None = None  # a change that comes about only then
        self.dies_at = math.inf

    @property
    def up(self) -> bool:
        return self.world.time >= self.away_until

    def describe(self) -> Description:
        self._answer()
        return Description(
            target=f"triton://{self.name}/m", server="made up", version="1", model="m",
            writable=True, quantiles=True, counts_by_process=True,
        )  # fmt: skip

    def current(self) -> Configuration:
        self._answer()
        return self.running

    def apply(self, wanted: Configuration) -> ApplyReport:
        world, before = self.world, self.running
        self._answer()
        world.check_alive()
        if wanted.get("max_batch_size", 0.0) > LARGEST:
            raise InvalidInput("knob max_batch_size", "the model takes no such batch")
        if world.made_of(wanted) == before:
            return ApplyReport.unchanged(before)
        fate = world.happens(refused=0.06, late=0.03, lost=0.03, came=0.03)
        if world.happens(stubborn=0.02):
            world.refusing_until = world.time + world.random.uniform(20.0, 500.0)
        refused = fate == "refused" or wanted in world.refused or world.time < world.refusing_until
        fate = "refused" if refused else fate
        self.late = None
        world.asked(self, wanted, fate)
        world.maybe_killed()
        if fate == "refused":
            raise Refused("out of memory")
        cost = SPACE.apply_cost(before, wanted)
        took = {ApplyCost.FREE: 0.0, ApplyCost.IN_PLACE: 0.2}.get(cost, world.random.uniform(0.5, 9.0))
        world.time += took
        if fate in ("", "came"):
            self.runs(world.made_of(wanted), "ours")
        elif fate == "late":
            self.late = world.time + world.random.uniform(1.0, 60.0), world.made_of(wanted)
        world.maybe_killed()
        if fate:
            world.time += 5.0
            raise TimedOut("no answer within 5 s")
        return ApplyReport(configuration=self.running, changed=True, cost=cost, seconds=took, settle=1.0)

    def runs(self, configuration: Configuration, setter: str) -> None:
        """It runs something else from now on, or the same again."""
        self.world.tell(f"{self.name} runs {self.world.text(configuration)} ({setter})")
        self.running, self.setter, self.late = configuration, setter, None
        self.world.changed_at = self.world.time
        deadly = self.world.nearest(configuration) in self.world.deadly
        self.dies_at = self.world.time + self.world.random.uniform(0.5, 4.5) if deadly else math.inf

    def restart(self, seconds: float, *, loses: bool) -> None:
        """Its process begins anew, and it is away meanwhile."""
        self.away_until, self.born = self.world.time + seconds, self.world.time
        self.world.tell(f"{self.name} restarts for {seconds:.1f} s")
        if loses:
            self.runs(self.world.home, "boot")

    def pass_time(self) -> None:
        """What was to happen until now happens."""
        if self.late is not None and self.late[0] <= self.world.time and self.up:
            self.runs(self.late[1], "ours")
        if self.dies_at <= self.world.time:
            self.world.died(self)
            self.restart(self.world.random.choice([0.2, 5.0, 40.0]), loses=True)

    def counters(self) -> Counters:
        self._answer()
        return Counters(
            time=self.world.time, requests=self.served, failures=self.failed, latency=self.latency, queue=0,
            compute=0, inferences=self.served, batch_counts=np.zeros(2, dtype=int), batch_seconds=np.zeros(2),
        )  # fmt: skip

    def profile(self) -> None:
        return None

    def close(self) -> None:
        pass

    def _answer(self) -> None:
        self.world.check_alive()
        if not self.up:
            raise Unreachable(f"no answer from {self.name}")


class World:
    """Everything outside of the daemon; it is also its clock and what measures windows for it.

    Args:
        random: Where everything comes from.
        trouble: How often something goes wrong: 0 is never, 1 is several times in ten windows.

    Attributes:
        alive: Whether there is a process of the daemon.
        story: What happened, a line each.
        quiet: Turns since something went wrong, or anybody but the daemon did anything.
    """

    def __init__(self, random: Random, trouble: float) -> None:
        self.random, self.trouble = random, trouble
        self.space: KnobSpace = SPACE
        self.time = 0.0
        self.alive = True
        self.story: list[str] = []
        self.quiet = 0
        self.home = self.anything()  # what a server runs that begins anew
        others = [SPACE.decode(n) for n in range(SPACE.size) if SPACE.decode(n) != self.home]
        self.refused = set(random.sample(others, random.choice([0, 0, 2, 6])))
        self.deadly = set(random.sample(others, random.choice([0, 0, 2, 6])))
        self.failing = {c: random.choice([0.3, 1.0]) for c in random.sample(others, random.choice([0, 0, 3]))}
        self.rounds = random.random() < 0.2
        self.keeps = random.random() < 0.3  # its configuration over a restart
        self.memory = random.choice([0.0, 0.0, 20.0])  # of the server's quantiles, s
        self.capacity = random.choice([60.0, 150.0, 400.0])
        self.rate = random.choice([100.0, 200.0, 400.0])
        self.refusing_until = self.silent_until = self.changed_at = self.full_until = -math.inf
        self.replicas = [Replica(self, name) for name in "abc"[: random.choice([1, 1, 1, 2, 3])]]
        self.fleet = len(self.replicas) > 1  # whose replicas come and go
        self.kill_in = math.inf  # questions about it until the process is killed
        self.during: Callable[[], object] = lambda: None  # what people do while a window is measured
        self.asked: Callable[[Replica, Configuration, str], None] = lambda *_: None
        self.died: Callable[[Replica], None] = lambda _: None

    def backend(self) -> Replica | ReplicaGroup:
        """What an adapter opens."""
        if not self.fleet:
            return self.replicas[0]

        def opened(name: str) -> Replica:
            return next(replica for replica in self.replicas if replica.name == name)

        names = lambda: [replica.name for replica in self.replicas]  # noqa: E731
        return ReplicaGroup(Membership("made up", names, opened, refresh=0.0))

    def tell(self, line: str) -> None:
        self.story.append(f"{self.time:9.1f} {line}")

    def text(self, configuration: Configuration) -> str:
        return "/".join(f"{configuration[name]:g}" for name in SPACE.names)

    def nearest(self, configuration: Configuration) -> Configuration:
        return SPACE.nearest(configuration)

    def anything(self) -> Configuration:
        return SPACE.decode(self.random.randrange(SPACE.size))

    def happens(self, **chances: float) -> str:
        """Return one of the names with its chance, or else an empty one."""
        number = self.random.random()
        for name, chance in chances.items():
            number -= chance * self.trouble
            if number < 0:
                self.quiet = -1
                return name
        return ""

    def check_alive(self) -> None:
        if not self.alive:
            raise Killed

    def maybe_killed(self) -> None:
        """A moment in which the process may be killed."""
        self.check_alive()
        self.kill_in -= 1
        if self.kill_in <= 0:
            self.tell("the daemon is killed")
            self.kill_in, self.alive = math.inf, False
            raise Killed

    # The clock of the daemon.

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.maybe_killed()
        end = self.time + seconds
        self.time += seconds * self.random.random()
        self.during()
        for replica in self.replicas:
            replica.pass_time()
        self.time = end
        for replica in self.replicas:
            replica.pass_time()
        self._serve(seconds)

    # The profiler.

    def changed(self, ago: float = 0.0) -> None:
        self.changed_at = max(self.changed_at, self.time - ago)

    def measure(self, seconds: float, *, settle: float = 0.0, enough: float = math.inf) -> Measurement:
        begun = self.time + settle
        fate = self.happens(away=0.02, restart=0.02, silent=0.02, deployed=0.02, full=0.01)
        if fate in ("away", "restart"):
            one = self.random.choice(self.replicas)
            for replica in self.replicas if self.random.random() < 0.5 else [one]:
                down = self.random.choice([0.0, 0.1, 3.0, 30.0, 200.0])
                if fate == "restart":
                    replica.restart(down, loses=not self.keeps)
                else:
                    replica.away_until = self.time + down
        if fate == "silent":
            self.silent_until = self.time + self.random.choice([1.0, 30.0])
        if fate == "deployed":
            self.deploy()
        if self.fleet and self.happens(scaled=0.03):
            self.scale()
        if fate == "full":
            self.full_until = self.time + self.random.choice([1.0, 10.0, 60.0])
        self.sleep(settle + seconds)
        up = [replica for replica in self.replicas if replica.up]
        gone = [begun < one.away_until for one in up]
        if not up or (all(gone) if self.fleet else any(gone)):
            raise Unreachable("no answer")
        if self.time < self.silent_until:
            raise TimedOut("metrics: no answer")
        return self._shown(up, begun, seconds)

    def scale(self) -> None:
        """A replica joins the fleet, and runs what all run that begin anew; or one leaves it for good."""
        if len(self.replicas) == 1 or (len(self.replicas) < 4 and self.random.random() < 0.5):
            self.replicas.append(Replica(self, f"{self.time:.0f}"))
            self.replicas[-1].born = self.time
            self.tell(f"{self.replicas[-1].name} joins")
        else:
            gone = self.replicas.pop(self.random.randrange(len(self.replicas)))
            gone.away_until = math.inf
            self.tell(f"{gone.name} leaves")

    def deploy(self, wanted: Configuration | None = None) -> None:
        """Somebody else deploys settings, perhaps with a server that is away meanwhile."""
        off = self.random.choice([{}, {}, {"max_batch_size": 6.0}, {"max_batch_size": 32.0}])
        wanted = wanted or self.anything().replace(**off)
        down = self.random.choice([0.0, 0.0, 2.0, 20.0])
        if self.random.random() < 0.3:
            self.home = wanted
        for replica in self.replicas:
            if down:
                replica.away_until, replica.born = self.time + down, self.time
            replica.runs(wanted, "others")
        self.quiet = -1

    def p95(self, configuration: Configuration) -> float:
        """The true latency of a configuration under the present load, s."""
        batch, delay, instances = (configuration[name] for name in SPACE.names)
        use = self.rate / (self.capacity * instances * float(batch**0.6))
        return 0.004 + delay + 0.0007 * batch + 0.004 / max(1.0 - use, 0.02)

    def failures(self, configuration: Configuration) -> float:
        """Which share of the requests fails under a configuration."""
        return self.failing.get(self.nearest(configuration), 0.0)

    def calm_down(self) -> None:
        """All trouble ends, but for what is always refused, kills or fails."""
        self.trouble = 0.0
        self.refusing_until = self.silent_until = self.full_until = -math.inf
        for replica in self.replicas:
            replica.away_until, replica.late = min(replica.away_until, self.time + 5.0), None

    def nearly_keeps_slo(self, configuration: Configuration) -> bool:
        """Whether a configuration keeps the SLO but for chance."""
        return self.p95(configuration) < 1.15 * SLO and not self.failures(configuration)

    def made_of(self, wanted: Configuration) -> Configuration:
        """What a server makes of what it is given: some round."""
        rounded = self.rounds and wanted["max_batch_size"] == LARGEST
        return wanted.replace(max_batch_size=LARGEST - 1) if rounded else wanted

    def keeps_slo(self, configuration: Configuration, share: float = 0.85) -> bool:
        """Whether a configuration keeps a share of the SLO under the present load: 0.85 leaves no doubt."""
        return self.p95(configuration) < share * SLO and not self.failures(configuration)

    def _serve(self, seconds: float) -> None:
        for replica in self.replicas:
            if replica.up:
                count = int(self.rate * seconds / len(self.replicas))
                failed = int(count * self.failures(replica.running))
                replica.served += count - failed
                replica.failed += failed
                replica.latency += (count - failed) * self.p95(replica.running) / 2

    def _shown(self, up: list[Replica], begun: float, seconds: float) -> Measurement:
        """A window as it is measured."""
        if self.happens(load=0.04):
            self.rate = self.random.choice([50.0, 100.0, 200.0, 400.0, 800.0])
        running = up[0].running
        p95 = max(self.p95(one.running) for one in up) * math.exp(self.random.gauss(0.0, 0.05))
        m = measurement(p95, running=running, rate=self.rate, end=self.time)
        count = max(int(self.rate * seconds), 1)
        failed = int(count * max(self.failures(one.running) for one in up))
        m = replace(
            m, start=self.time - seconds, requests=count - failed, failures=failed,
            quantiles_mixed=self.time - self.changed_at < self.memory + seconds * (self.memory > 0),
            restarted=not self.fleet and up[0].born > begun - 1e-9,
        )  # fmt: skip
        if failed == count:
            nothing = dict.fromkeys(("latency_mean", "latency_p50", "latency_p95", "latency_p99"), math.nan)
            return replace(m, **nothing, disturbed=(UNANSWERED,))  # type: ignore[arg-type]
        if self.changed_at > begun + 1e-9 or any(one.born > begun for one in up):
            return replace(m, disturbed=("the server was changed or restarted in the window",))
        fate = self.happens(disturbed=0.05, idle=0.02)
        if fate == "idle":
            return replace(m, requests=0, failures=0, arrival_rate=0.0)
        return replace(m, disturbed=("foreign CPU 1.2 cores",)) if fate else m

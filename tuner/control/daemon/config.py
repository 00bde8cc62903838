"""The daemon's configuration file: which targets to keep, how, and when they may be changed.

It is one YAML file, checked before the daemon attaches to anything; an error names file, line and field
(:func:`tuner.files.yaml_file.load_yaml`). ``docs/daemon.md`` has the table of fields;
``tuner config example`` prints a file to start from.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from datetime import time as clock_time
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints
from zoneinfo import ZoneInfo, available_timezones

from pydantic import BeforeValidator, ConfigDict, Field, PlainValidator, PrivateAttr, ValidationInfo
from pydantic import field_validator as check_field
from pydantic import model_validator as check_model

from tuner.adapters.connection.credentials import check_not_in_the_clear, check_private
from tuner.adapters.place import Place, places_of
from tuner.adapters.registry import scheme_of
from tuner.control.decide.limits import GuardLimits
from tuner.duration import parse_duration
from tuner.errors import InvalidInput, TunerError
from tuner.files.schema import address_like
from tuner.files.stored import Part, with_fields
from tuner.files.yaml_file import shown
from tuner.knobs import Grids, KnobSpace, parse_value
from tuner.objective import GOALS, Objective, Slo, parse_slo
from tuner.profiler.indicator import PrometheusIndicator
from tuner.setting import Load, Setting, Sli

__all__ = ["Bounds", "DaemonConfig", "GuardSection", "Maintenance", "SliSection", "TargetConfig"]

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MIDNIGHT = clock_time(0)
WHOLE_DAYS = 'for whole days write from: "00:00" and to: "24:00"'


class Section(Part):
    """A group of fields in the file; immutable."""

    model_config = ConfigDict(frozen=True)


def _parsed(read: Callable[[str], Any], value: Any) -> Any:
    """Read text as the command line does; the error leaves out the name of the command's option."""
    if not isinstance(value, str):
        raise ValueError(f"must be text, but got {shown(value)}")
    try:
        return read(value)
    except InvalidInput as error:
        raise ValueError(str(error).removeprefix(f"{error.setting}: ")) from None


def _seconds(least: float, most: float, value: Any) -> float:
    seconds = float(_parsed(lambda text: parse_duration(text, "duration"), value))
    if not least <= seconds <= most:
        raise ValueError(f"must lie between {least:g} s and {most:g} s, but got {value}")
    return seconds


def _number(value: Any) -> float:
    """Read one value of a knob: a number or a duration."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"must be a number or a duration such as 5ms, but got {value!r}")
    number = (
        float(_parsed(lambda text: parse_value(text, "value"), value)) if isinstance(value, str) else value
    )
    if not math.isfinite(number):
        raise ValueError(f"must be finite, but got {value}")
    return float(number)


Number = Annotated[float, PlainValidator(_number)]


class Bounds(Section):
    """The least and the largest value of a knob; the grid between them is the server's own."""

    least: Number = -math.inf
    most: Number = math.inf

    def within(self, grid: tuple[float, ...]) -> tuple[float, ...]:
        """Return the values of a grid that lie within the bounds."""
        return tuple(value for value in grid if self.least <= value <= self.most)


def _grid(value: Any) -> Bounds | tuple[float, ...]:
    """Read the values of a knob: a list, one value, or bounds."""
    if isinstance(value, Mapping):
        if unknown := set(value) - {"least", "most"}:
            raise ValueError(
                f"there is no '{min(unknown)}'; write {{least: 1, most: 16}} or a list of values"
            )
        found = Bounds(**{name: _number(part) for name, part in value.items()})
        if not found.least <= found.most:
            raise ValueError(f"`least <= most` must hold, but got {found.least:g} and {found.most:g}")
        return found
    values = value if isinstance(value, list | tuple) else [value]
    if not values:
        raise ValueError("needs at least one value")
    return tuple(sorted({_number(part) for part in values}))


def _shape(value: Any) -> tuple[int, ...]:
    """Read the shape of an input: a list of sizes, or the only one."""
    sizes = value if isinstance(value, list | tuple) else [value]
    if not sizes or not all(type(size) is int and size > 0 for size in sizes):
        raise ValueError(f"must be sizes such as [224, 224, 3], without the batch, but got {value!r}")
    return tuple(sizes)


def _moment(value: Any) -> clock_time:
    """Read ``HH:MM``; 24:00 is the midnight that ends a day."""
    text = str(value).strip()
    if text == "24:00":
        return MIDNIGHT
    try:
        return datetime.strptime(text, "%H:%M").time()
    except ValueError:
        raise ValueError(f'must be a time of day such as "02:30", in quotes, but got {value!r}') from None


def _days(value: Any) -> tuple[int, ...]:
    """Read ``daily``, ``mon-fri``, ``sat`` or ``mon, wed, fri``."""
    text = str(value).strip().lower()
    if text == "daily":
        return tuple(range(7))
    chosen: set[int] = set()
    for part in text.split(","):
        first, _, last = (piece.strip() for piece in part.partition("-"))
        if first not in DAYS or (last and last not in DAYS):
            raise ValueError(f"{value!r} names no days; write daily, mon-fri, sat, or mon,wed")
        begin, end = DAYS.index(first), DAYS.index(last or first)
        chosen |= {day % 7 for day in range(begin, end + 1 if end >= begin else end + 8)}
    return tuple(sorted(chosen))


def _zone(name: str) -> tzinfo:
    """Return a time zone; a KeyError or the like if there is none. UTC needs no database of them."""
    return UTC if name == "UTC" else ZoneInfo(name)


class Maintenance(Section):
    """A time of the week in which configurations may be changed; it may span midnight."""

    days: Annotated[tuple[int, ...], PlainValidator(_days)] = tuple(range(7))
    """The days on which it begins; 0 is Monday."""
    begin: Annotated[clock_time, PlainValidator(_moment)] = Field(alias="from")
    end: Annotated[clock_time, PlainValidator(_moment)] = Field(alias="to")

    @check_field("end", mode="before")
    @classmethod
    def _is_not_the_beginning(cls, end: Any, info: ValidationInfo) -> Any:
        # As written: 24:00 is read as midnight, too, and a day from 00:00 to 24:00 is one.
        if str(end).strip() != "24:00" and _moment(end) == info.data.get("begin"):
            raise ValueError(f"is the time of `from`; {WHOLE_DAYS}")
        return end

    @check_model(mode="before")
    @classmethod
    def _is_not_the_end_alone(cls, written: Any) -> Any:
        times = [written.get("from"), written.get("to")] if isinstance(written, Mapping) else []
        if [str(time).strip() for time in times] == ["24:00", "24:00"]:
            raise ValueError(f"`from` and `to` are the same time; {WHOLE_DAYS}")
        return written

    def open(self, now: datetime) -> bool:
        """Whether a local time of the target's time zone lies within the maintenance window."""
        time = now.time()
        yesterday = (now - timedelta(days=1)).weekday()
        if self.begin < self.end or self.end == MIDNIGHT:
            inside = self.begin <= time and (time < self.end or self.end == MIDNIGHT)
            return inside and now.weekday() in self.days
        evening = time >= self.begin and now.weekday() in self.days
        return evening or (time < self.end and yesterday in self.days)


@with_fields(
    {
        name: (get_type_hints(GuardLimits)[name], Field(default=limit.default, **limit.metadata))
        for name, limit in GuardLimits.__dataclass_fields__.items()
    }
)
class GuardSection(Section):
    """How careful to be with a target: the limits of `GuardLimits`."""

    def limits(self) -> GuardLimits:
        """Return the limits."""
        return GuardLimits(**self.model_dump())


def _secret(path: Path | None, info: ValidationInfo) -> Path | None:
    """Return a file of secrets relative to the daemon's file; refuse one that everybody can read."""
    if path is None or not info.context:
        return path
    place: Path = info.context["folder"] / path
    try:
        check_private(place, "")
    except InvalidInput as error:
        raise ValueError(str(error).strip()) from None
    return place


class SliSection(Section):
    """A Prometheus server that measures the latency instead of the model server."""

    prometheus: str
    """Its address, such as http://prometheus:9090."""
    query: str
    """PromQL whose result is in seconds; ``{window}`` and ``{quantile}`` are filled in."""
    token_file: Path | None = None
    """File of the bearer token; relative to the daemon's file."""

    @check_field("prometheus")
    @classmethod
    def _web_address(cls, address: str) -> str:
        _parsed(lambda text: PrometheusIndicator(url=text, query="up"), address)
        return address

    @check_field("query")
    @classmethod
    def _usable(cls, query: str, info: ValidationInfo) -> str:
        if "prometheus" in info.data:
            _parsed(lambda text: PrometheusIndicator(url=info.data["prometheus"], query=text), query)
        return query

    @check_field("token_file")
    @classmethod
    def _beside_the_file(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        if path is not None and "prometheus" in info.data:
            _parsed(partial(check_not_in_the_clear, setting="token_file"), info.data["prometheus"])
        return _secret(path, info)


class TargetConfig(Section):
    """A target: one model on one server, its SLO, and how to treat it."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """Name in the history, logs and metrics."""
    url: str
    """Such as ``triton://127.0.0.1:8001/resnet50?metrics=8002``."""
    slo: Annotated[Slo, PlainValidator(partial(_parsed, parse_slo))]
    """Such as ``p95=30ms``."""
    objective: Literal[GOALS] = "latency"  # type: ignore[valid-type]  # the one list of goals
    """What is least while the SLO is kept."""
    change_cost: float = Field(default=0.0, ge=0, le=1e6)
    """Weight of what a change costs."""
    mode: Literal["observe", "recommend", "apply"] = "recommend"
    """``observe`` only measures, ``recommend`` decides and changes nothing, ``apply`` changes the server."""
    window: Annotated[float, BeforeValidator(partial(_seconds, 0.2, 600))] = 10.0
    """Length of a window, s."""
    knobs: dict[str, Annotated[Bounds | tuple[float, ...], PlainValidator(_grid)]] = Field(
        default_factory=dict
    )
    """Values or bounds by knob; without any the adapter's own grids."""
    maintenance: tuple[Maintenance, ...] = ()
    """When configurations may be changed; without any, always. Rollbacks happen at any time."""
    time_zone: str = "UTC"
    """Time zone of ``maintenance``, such as Europe/Berlin."""
    probe_rate: float | None = Field(default=None, gt=0, le=1000)
    """Requests/s of our own, to time a server that exports no quantiles."""
    shapes: dict[str, Annotated[tuple[int, ...], PlainValidator(_shape)]] = Field(default_factory=dict)
    """Shapes of inputs with open dimensions in these requests, without the batch; open ones are 1 else."""
    sli: SliSection | None = None
    """Where the latency comes from instead of the server."""
    foreign_limit: float | None = Field(default=None, ge=0)
    """Cores of foreign processes above which a window is not used, however steady they are; without it
    a window is set aside only if contention moved in it."""
    canary: bool = True
    """Try configurations on one replica first, where there are several."""
    guard: GuardSection = GuardSection()
    policy: Path | None = None
    """Folder of a trained agent to start from, written by ``tuner train``; relative to the daemon's file."""
    plan: Path | None = None
    """Scenario of ``tuner plan instances`` for the pool behind a dispatcher; beside the daemon's file."""
    seed: int = Field(default=0, ge=0, lt=2**32)
    """Seed of all random numbers."""
    _digests: dict[str, str] = PrivateAttr(default_factory=dict)
    """Of what ``policy`` and ``plan`` held when the file was read: written anew they are other settings."""

    def model_post_init(self, context: Any) -> None:
        """Take the digests of the files that are named here, if they were looked for.

        Raises:
            StorageError: The policy has gone meanwhile.
        """
        if context and self.policy is not None:
            from tuner.agents.policy_file import read_manifest

            self._digests["policy"] = read_manifest(self.policy).sha256
        if context and self.plan is not None:
            with suppress(OSError):  # it has gone meanwhile, which its reader tells
                self._digests["plan"] = hashlib.sha256(self.plan.read_bytes()).hexdigest()

    @property
    def policy_digest(self) -> str:
        """The digest of the agent to start from; empty without one."""
        return self._digests.get("policy", "")

    @check_field("url")
    @classmethod
    def _names_a_place(cls, url: str) -> str:
        _parsed(places_of, url)
        return url

    @check_field("shapes")
    @classmethod
    def _are_of_requests(cls, shapes: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if shapes and info.data.get("probe_rate", 0) is None:
            raise ValueError("are those of our own requests, which probe_rate sends: give that, too")
        return shapes

    @check_field("time_zone")
    @classmethod
    def _exists(cls, name: str) -> str:
        try:
            _zone(name)
        except (KeyError, ValueError, OSError):
            problem = f"there is no time zone '{name}'; write one such as Europe/Berlin or UTC"
            if not available_timezones():
                problem = "this machine knows no time zones but UTC; install the package tzdata"
            raise ValueError(problem) from None
        return name

    @check_field("policy")
    @classmethod
    def _beside_the_file(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        if path is None or not info.context:
            return path
        from tuner.control.daemon.policy_check import check_settings

        folder: Path = info.context["folder"] / path
        if not os.path.isdir(folder):  # pathlib raises for a name that is too long
            raise ValueError(f"there is no folder {folder}; give one that `tuner train` wrote")
        try:
            check_settings(folder, info.data)
        except TunerError as error:
            raise ValueError(str(error)) from None
        return folder

    @check_field("plan")
    @classmethod
    def _can_be_planned_with(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        if path is None or not info.context:
            return path
        if scheme_of(info.data.get("url", "dispatch://")) != "dispatch":
            raise ValueError("is for a dispatcher, whose requests have sizes: a target dispatch://HOST:PORT")
        from tuner.control.daemon.pool_advice import PoolAdvisor

        place: Path = info.context["folder"] / path
        try:
            PoolAdvisor(place)
        except TunerError as error:
            raise ValueError(str(error)) from None
        return place

    def setting(self, grids: Grids) -> Setting:
        """Return what the target is tuned toward, with the grids of its knobs; see :meth:`grids`."""
        return Setting(
            objective=Objective(slo=self.slo, goal=self.objective, change_cost=self.change_cost),
            load=Load(rate=self.probe_rate, shapes=self.shapes),
            foreign_limit=self.foreign_limit,
            sli=Sli(**dict(self.sli)) if self.sli is not None else None,
            grids=grids,
            window=self.window,
        )

    def may_change(self, now: float) -> bool:
        """Whether configurations may be changed at a time, seconds since 1970."""
        if not self.maintenance:
            return True
        there = datetime.fromtimestamp(now, _zone(self.time_zone))
        return any(part.open(there) for part in self.maintenance)

    def grids(
        self, space: KnobSpace, before: Mapping[str, Sequence[float]] | None = None
    ) -> dict[str, tuple[float, ...]]:
        """Return the grids that replace those of a server's knobs: the policy's, if there is one.

        Args:
            space: The server's knobs with its own grids.
            before: Values of knobs in an earlier life, to be among those of the server's own grids.

        Raises:
            InvalidInput: A knob has bounds that no value of its grid lies within, or bounds and is unknown.
            StorageError: There is no policy, or it is damaged.
        """
        own = {knob.name: knob.grid for knob in space.knobs}
        found: dict[str, tuple[float, ...]] = {}
        if self.policy is not None:
            from tuner.agents.policy_file import grids_of

            found.update(grids_of(self.policy))
        else:
            for name, grid in (before or {}).items():
                if name in own and not {*grid} <= {*own[name]}:
                    found[name] = tuple(sorted({*own[name], *grid}))
        own.update(found)
        for name, wanted in self.knobs.items():
            if isinstance(wanted, tuple):
                found[name] = wanted
                continue
            if name not in own:
                raise InvalidInput(f"{self.name} knob {name}", "unknown", f"the knobs are {', '.join(own)}")
            found[name] = wanted.within(own[name])
            if not found[name]:
                values = ", ".join(f"{value:g}" for value in own[name])
                raise InvalidInput(
                    f"{self.name} knob {name}", "no value within its bounds", f"it has {values}"
                )
        return found


class HttpSection(Section):
    """Where the daemon's web server listens, and who may give orders through it."""

    listen: Annotated[tuple[str, int], PlainValidator(address_like(7411))] = ("127.0.0.1", 7411)
    """Host and port; port 0 takes any free one."""
    token_file: Path | None = None
    """File of the token that orders need, relative to the daemon's file; else SERVETUNE_TOKEN holds it."""
    hosts: tuple[str, ...] = ()
    """Host names that are answered. Without any: all of them, or on a loopback address only its own."""

    @check_field("token_file")
    @classmethod
    def _beside_the_file(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        return _secret(path, info)


class DaemonConfig(Section):
    """The whole file."""

    state: Path = Field(default=Path("servetune.db"), validate_default=True)
    """The store of windows, decisions and trained agents; relative to the daemon's file."""
    keep: Annotated[float, BeforeValidator(partial(_seconds, 60, 10 * 365 * 86400))] = 30 * 86400.0
    """How long windows, decisions and events are kept, s."""
    http: HttpSection | None = None
    """The web server; without it nothing listens."""
    targets: tuple[TargetConfig, ...]

    @check_field("state")
    @classmethod
    def _beside_the_file(cls, path: Path, info: ValidationInfo) -> Path:
        if not info.context:
            return path
        place: Path = info.context["folder"] / path
        here = info.context.get("here", False)  # a file may also be checked for another machine
        if here and not os.path.isdir(place.parent):  # pathlib raises for a name that is too long
            raise ValueError(f"there is no folder {place.parent}; make it, or give another file")
        return place

    @check_field("targets")
    @classmethod
    def _differ(cls, targets: tuple[TargetConfig, ...]) -> tuple[TargetConfig, ...]:
        if not targets:
            raise ValueError("needs at least one target; `tuner config example` shows one")
        names, homes = set[str](), dict[Place, str]()
        for target in targets:
            if target.name in names:
                raise ValueError(f"two targets have the name '{target.name}'; give each its own")
            names.add(target.name)
            for place in places_of(target.url):
                other = homes.setdefault(place, target.name)
                if other != target.name:
                    raise ValueError(
                        f"'{other}' and '{target.name}' would both tune {place}, "
                        "and undo what the other does; keep one of them"
                    )
        return targets

"""A mixed cluster as its YAML file describes it: sessions, a catalogue of instance types, and a budget.

One form serves planning and simulating: `tuner plan instances` needs ``catalogue``, ``sessions`` and
``budget``; the other fields say how a pool is driven and are not used for a plan.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, ValidationInfo
from pydantic import field_validator as check_field

from tuner.errors import InvalidInput
from tuner.planning.pools.catalogue import CatalogueFile, Entry, InstanceType, Positive, Some, check_names
from tuner.planning.pools.paper import QUANTILE, paper_catalogue
from tuner.planning.pools.sizes import SizeDistribution, parse_sizes

__all__ = ["MixedScenario", "QuerySession", "Rented"]

PAPER = "paper"
"""The catalogue that ships with us."""
TRACE = "trace:"


class Rented(Entry):
    """Instances of one type."""

    type: str = Field(min_length=1)
    count: Annotated[int, Field(strict=True, ge=0, le=10_000)]


class QuerySession(Entry):
    """A model with its QoS target and its queries, each a batch of 1 to 1000 items."""

    name: str = Field(min_length=1)
    model: str = Field(min_length=1)
    """As in the catalogue's profiles."""
    qos_ms: Positive
    """From the arrival of a query to its answer."""
    quantile: Annotated[float, Field(strict=True, gt=0, lt=1)] = QUANTILE
    """The part of the queries that must keep ``qos_ms``."""
    rate: Annotated[float, Field(strict=True, ge=1e-6, le=1e9)] | None = None
    """Queries/s."""
    arrival: Literal["poisson", "integer_poisson"] = "poisson"
    """Exponential gaps, or Poisson-distributed numbers of whole milliseconds, as in the paper's code."""
    sizes: str = PAPER
    """``paper``, ``lognormal:MU,SIGMA``, ``gaussian:MU,SIGMA`` or ``trace:FILE``."""

    @check_field("sizes")
    @classmethod
    def _sizes_are_known(cls, text: str, info: ValidationInfo) -> str:
        if text.strip().startswith(TRACE):
            return f"{TRACE}{_file(text.strip().removeprefix(TRACE), info)}"
        try:
            return parse_sizes(text).name
        except InvalidInput as error:
            raise ValueError(str(error).removeprefix("sizes: ")) from None

    @property
    def qos(self) -> float:
        """The QoS target, s."""
        return self.qos_ms / 1e3

    def distribution(self) -> SizeDistribution:
        """Return how many items queries have.

        Raises:
            TunerError: A trace cannot be read.
        """
        return parse_sizes(self.sizes)


def _form(value: Any) -> str:
    return "name" if isinstance(value, str) else "types"


class MixedScenario(Entry):
    """Sessions on a pool of instances of several types.

    >>> MixedScenario(sessions=[QuerySession(name="a", model="rm2", qos_ms=350)], budget=2.5).types[0].name
    'g4dn.xlarge'
    """

    policy: Literal["kairos", "ribbon", "drs", "clkwrk", "oracle"] = "kairos"
    """Which query goes to which instance."""
    instances: tuple[Rented, ...] | None = None
    """The pool; not used for a plan."""
    catalogue: Annotated[
        Annotated[str, Tag("name")] | Annotated[tuple[InstanceType, ...], Some, Tag("types")],
        Discriminator(_form),
    ] = PAPER
    """``paper``, the name of a file with a ``catalogue:`` list, or the list itself."""
    sessions: Annotated[tuple[QuerySession, ...], Some]
    budget: Positive | None = None
    """$/h; a plan needs it."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Of the policy, where it has any; not used for a plan."""
    noise: Annotated[float, Field(strict=True, ge=0, le=1)] = 0.0
    """Standard deviation of execution times, relative to the profile; not used for a plan."""
    queries: Annotated[int, Field(strict=True, ge=1, le=1_000_000_000)] = 20_000
    """How many are simulated."""
    seed: Annotated[int, Field(strict=True, ge=0, lt=1 << 63)] = 0
    """Of everything random."""

    @check_field("catalogue")
    @classmethod
    def _catalogue_is_known(
        cls, given: str | tuple[InstanceType, ...], info: ValidationInfo
    ) -> str | tuple[InstanceType, ...]:
        if not isinstance(given, str):
            return check_names(given)
        return PAPER if given.strip() == PAPER else _file(given.strip(), info)

    @cached_property
    def types(self) -> tuple[InstanceType, ...]:
        """The instance types of the catalogue; raises TunerError if its file cannot be used."""
        if not isinstance(self.catalogue, str):
            return self.catalogue
        if self.catalogue == PAPER:
            return paper_catalogue()
        from tuner.yaml_file import load_yaml

        return load_yaml(Path(self.catalogue), CatalogueFile).catalogue


def _file(name: str, info: ValidationInfo) -> str:
    """Return the path of a file that is named beside the scenario's."""
    path = Path((info.context or {}).get("folder", Path())) / name
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    return str(path)

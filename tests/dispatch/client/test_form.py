"""Which version, label and signature frontends ask for: what the dispatcher's file says of each backend."""

from __future__ import annotations

import pytest

from tests.dispatch.client.frontends import Pipe, frontend
from tests.dispatch.client.test_aio import Backends, Input
from tests.dispatch.clock import run
from tests.dispatch.fakes import bench
from tests.dispatch.front.echo import Echo
from tests.dispatch.front.test_conversation import said, talk
from tuner.dispatch.client import AsyncGrantClient
from tuner.dispatch.grant import Ask, Grant
from tuner.dispatch.request import ModelForm


class Asked(Backends):
    """Those that note which versions they are asked for."""

    def __init__(self, *statuses: str) -> None:
        super().__init__(*statuses)
        self.versions: list[object] = []

    async def infer(self, model: str, inputs: list[Input], **options: object) -> str:
        self.versions.append(options["model_version"])
        return await super().infer(model, inputs, **options)

    async def is_model_ready(self, model: str, **options: object) -> bool:
        self.versions.append(options["model_version"])
        return False


@pytest.mark.parametrize(
    ("target", "form"),
    [
        ("triton://a:1/m?version=3", ModelForm(version="3")),
        ("tfserving://a:1/m?label=canary&signature=classify", ModelForm("", "canary", "classify")),
        ("tfserving://a:1/m?signature=serving_default", ModelForm()),
        ("triton://a:1/m", ModelForm()),
    ],
)
def test_a_grant_says_what_is_asked_of_the_model(target: str, form: ModelForm) -> None:
    """As the backend's target does."""

    async def main() -> None:
        found = bench({"backends": [target]}, mode="grants", servers=1)
        async with found as dispatcher, frontend(dispatcher) as client, client.grant("m") as granted:
            assert granted.form == form

    run(main())


def test_a_request_is_sent_to_the_version() -> None:
    """So is the question whether a backend is there."""

    async def main() -> None:
        backends = Asked("UNAVAILABLE", "")
        found = bench({"backends": ["triton://a:1/m?version=3"]}, mode="grants", servers=1)
        async with (
            found as dispatcher,
            AsyncGrantClient(
                "nowhere", connect=lambda _: backends, open_line=lambda: Pipe(dispatcher)
            ) as client,
        ):
            assert await client.infer("m", [Input("x", 1)], timeout=5.0) == "m"
        assert backends.versions == ["3"] * 3

    run(main())


class Granting(Echo):
    """Grants a version."""

    async def grant(self, ask: Ask) -> Grant:
        return Grant(self.backend, "model", 0.5, form=ModelForm(version="3"))


def test_what_travels() -> None:
    """Fields that older frontends ignore; none where there is nothing to say, as from older dispatchers."""
    common = {"grant": 1, "backend": "triton://backend:1", "model": "model", "timeout": 0.5}
    asked = said({"ask": 1, "session": "echo"})
    assert run(talk(Granting(), asked)) == [{**common, "version": "3"}]
    assert run(talk(Echo(), asked)) == [common]

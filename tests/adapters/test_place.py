"""Which servers a target means, however it is written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tuner.adapters.backend import Description
from tuner.adapters.place import places_of, turned_places
from tuner.errors import InvalidInput


@pytest.mark.parametrize(
    "written",
    [
        "triton://h:8001/m",
        "triton://h/m",
        "TRITON://H:8001/m",
        "triton://h.:8001/m/",
        "triton://h/m?metrics=8002",
        "triton://h/%6D?metrics=off&version=1",
        "triton://h/m?replicas=dns",
        "triton://g:8001,h:8001/m?metrics=8002,9002",
    ],
)
def test_one_server_written_differently(written: str) -> None:
    """Options, case, the default port, a final slash and other replicas make no other server of it."""
    assert places_of(written) & places_of("triton://h:8001/m")


@pytest.mark.parametrize(
    "other", ["triton://h:9001/m", "triton://h/n", "triton://g,k/m", "tfserving://h:8001/m", "sim://m"]
)
def test_other_servers_and_models(other: str) -> None:
    """Another port, model, host or kind of server."""
    assert not places_of(other) & places_of("triton://h:8001/m")


def test_addresses_have_one_form() -> None:
    """However long an address is written; localhost is this machine."""
    assert places_of("tfserving://[0:0::1]:8500/m") == places_of("tfserving://[::1]/m")
    assert places_of("triton://localhost/m") == places_of("triton://127.0.0.1:8001/m")
    assert [str(place) for place in places_of("triton://[::1]/m")] == ["m on [::1]:8001"]


@pytest.mark.parametrize(
    "target",
    ["ftp://h/m", "h/m", "triton:h/m", "triton://h", "triton://h:x/m", "triton://g,/m", "triton://[::1/m"],
)
def test_what_is_no_place(target: str) -> None:
    """The error comes without a connection; for an unknown scheme it names the known ones."""
    with pytest.raises(InvalidInput) as raised:
        places_of(target)

    known = "triton://" in str(raised.value)
    assert known, raised.value


def test_a_target_turns_the_models_of_its_ensemble() -> None:
    """On each of its servers; else its own model."""
    target = "triton://h,g/pipe?metrics=off"
    one = Description(
        target=target, server="triton", version="2", model="pipe", writable=True, quantiles=False
    )

    assert turned_places(target, one) == places_of(target)
    assert turned_places(target, replace(one, turns=("p", "q"))) == (
        places_of("triton://h,g/p") | places_of("triton://g,h/q")
    )


@pytest.mark.parametrize("written", ["DISPATCH://LocalHost", "dispatch://127.0.0.1/?token_file=/no/token"])
def test_one_dispatcher_written_differently(written: str) -> None:
    """The file of its token need not be here, where the daemon's file is read."""
    one = places_of("dispatch://127.0.0.1:9102")

    assert places_of(written) == one
    assert [str(place) for place in one] == ["127.0.0.1:9102"]
    assert not places_of("dispatch://127.0.0.1:9103") & one
    with pytest.raises(InvalidInput, match="does not name the control port of a dispatcher"):
        places_of(f"{written.partition('?')[0]}/mlp")

"""Secrets stand in files of their own, and are not sent in the clear."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner.adapters import connect
from tuner.adapters.connection.credentials import check_not_in_the_clear, is_loopback, read_secret
from tuner.adapters.tfserving.target import parse_target as parse_tfserving
from tuner.adapters.triton.target import parse_target as parse_triton
from tuner.errors import InvalidInput, StorageError


def test_token_files(tmp_path: Path) -> None:
    """Surrounding space does not count; an empty file is a mistake."""
    for name, text in {"token": " abc\n", "empty": "\n"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)

    assert read_secret(tmp_path / "token", "token_file") == "abc"
    for name in ("empty", "missing"):
        with pytest.raises(StorageError, match=name):
            read_secret(tmp_path / name, "token_file")


def test_a_token_that_everybody_can_read_is_none(tmp_path: Path) -> None:
    """A group may."""
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o640)
    assert read_secret(token, "token_file") == "secret"

    token.chmod(0o644)
    with pytest.raises(InvalidInput, match="can be read by everybody; chmod o-r") as raised:
        read_secret(token, "sli.token_file")

    assert "sli.token_file" in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "rest", ["{}@h:1/m", "{}@h:1/m/n", "{}@g,h/m?replicas=x", "{}/w@h/m", "{}?w@h/m", "{}@h:x/m"]
)
@pytest.mark.parametrize("scheme", ["triton", "tfserving", "sim", "ftp"])
def test_a_password_in_a_target_is_refused_and_not_repeated(scheme: str, rest: str) -> None:
    """However malformed the rest of the target is; the message says where it belongs."""
    with pytest.raises(InvalidInput, match="token_file=") as raised:
        connect(f"{scheme}://{rest.format('user:pw-123')}")

    assert "pw-123" not in str(raised.value)


@pytest.mark.parametrize("parse", [parse_triton, parse_tfserving])
def test_whoever_reads_a_target_refuses_passwords(parse: Callable[..., Any]) -> None:
    """Also without opening it."""
    with pytest.raises(InvalidInput) as raised:
        parse("triton://user:pw-123@h/m/n")

    assert "pw-123" not in str(raised.value)


@pytest.mark.parametrize(
    ("host", "expected"), [("LocalHost", True), ("127.8.0.1", True), ("::1", True), ("h", False)]
)
def test_this_machine(host: str, expected: bool) -> None:
    """By its names and addresses."""
    assert is_loopback(host) == expected


def test_tokens_go_over_tls_or_stay_on_this_machine() -> None:
    """Nobody in between can read them."""
    for address in ("https://prom:9090", "http://127.0.0.1:9090", "http://[::1]:9090/prefix"):
        check_not_in_the_clear(address, "token_file")

    with pytest.raises(InvalidInput, match=r"token_file: .*http://prom:9090 in the clear; use https"):
        check_not_in_the_clear("http://prom:9090", "token_file")

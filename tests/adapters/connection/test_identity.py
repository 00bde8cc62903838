"""A certificate, its key and authorities, read and checked together."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from tests.adapters.certificates import make_certificates, openssl
from tuner.adapters.connection.identity import Identity, read_identity
from tuner.errors import StorageError


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    openssl(folder, "ec", "-in", "server.key", "-aes128", "-passout", "pass:word", "-out", "locked.key")
    (folder / "cut.crt").write_bytes((folder / "server.crt").read_bytes()[:-60])
    (folder / "cut.key").write_bytes((folder / "server.key").read_bytes()[:-60])
    (folder / "chain.crt").write_bytes(
        (folder / "server.crt").read_bytes() + (folder / "ca.crt").read_bytes()
    )
    (folder / "cut-chain.crt").write_bytes((folder / "chain.crt").read_bytes()[:-60])
    (folder / "empty").touch()
    return folder


def test_what_belongs_together(certificates: Path) -> None:
    """The bytes of the files; who must be certified is asked for it."""
    names = ("chain.crt", "server.key", "ca.crt")
    certificate, key, authorities = (certificates / name for name in names)

    everything = read_identity(certificate, key, authorities)

    assert everything == Identity(*((certificates / name).read_bytes() for name in names))
    assert "PRIVATE" not in repr(everything)
    assert everything.server_context().verify_mode is ssl.CERT_REQUIRED
    assert read_identity(certificate, key, None).server_context().verify_mode is ssl.CERT_NONE
    assert read_identity(None, None, authorities) == Identity(None, None, authorities.read_bytes())
    assert read_identity(None, None, None) == Identity(None, None, None)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("server.crt", "client.key"), "server.crt and .*client.key: .*do not belong together"),
        (("cut.crt", "server.key"), "cut.crt: is no certificate"),
        (("cut-chain.crt", "server.key"), "cut-chain.crt: is no certificate"),
        (("empty", "server.key"), "empty: is no certificate"),
        (("server.crt", "cut.key"), "cut.key: is no key"),
        (("server.crt", "empty"), "empty: is no key"),
        (("server.crt", "locked.key"), "locked.key: .*with a password"),
        (("server.crt", "server.key", "empty"), "empty: is no certificate"),
        (("server.crt", "missing"), "missing: No such file"),
        (("", "", "server.key"), "server.key: is no certificate"),
    ],
)
def test_the_file_that_cannot_be_used_is_named(
    certificates: Path, names: tuple[str, ...], words: str
) -> None:
    """Also one that somebody is writing. Nobody is asked for a password."""
    paths = [certificates / name if name else None for name in (*names, "")[:3]]

    with pytest.raises(StorageError, match=words):
        read_identity(*paths)


def test_too_many_open_files(certificates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of ours: it is tried again."""

    def no_more(_name: str) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("os.memfd_create", no_more)

    with pytest.raises(StorageError, match="cannot be checked: Too many open files"):
        read_identity(certificates / "server.crt", certificates / "server.key", None)

"""Certificates for tests: an authority, a server on 127.0.0.1 and a client, made by openssl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["make_certificates"]

AUTHORITY = "keyUsage=critical,keyCertSign,cRLSign"
"""Python 3.13 trusts no authority that does not say so."""
EXTENSIONS = """
subjectAltName=IP:127.0.0.1,DNS:localhost
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
"""


def make_certificates(folder: Path) -> None:
    """Fill a folder with ``ca.crt``, and ``NAME.crt`` and ``NAME.key`` for server and client."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on PATH")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl(
        folder,
        "req",
        "-x509",
        *key,
        "-keyout",
        "ca.key",
        "-out",
        "ca.crt",
        "-subj",
        "/CN=tests",
        "-days",
        "2",
        "-addext",
        AUTHORITY,
    )
    (folder / "extensions").write_text(EXTENSIONS)
    for name in ("server", "client"):
        openssl(folder, "req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signing = [
            "-CA",
            "ca.crt",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-extfile",
            "extensions",
            "-days",
            "2",
        ]
        openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.crt", *signing)


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

"""Files that no daemon can be kept with: each is refused in a sentence, and what runs goes on."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

__all__ = ["BAD_FILES"]

TARGET = "targets: [{{name: a, url: 'sim://mlp', slo: p95=30ms, {}}}]\n"
POLICY = "policy"
"""Folder of the policy that a file names."""
HEADER = "{{'descr': {}, 'fortran_order': False, 'shape': {}}}"

Writer = Callable[[Path], None]


def _text(content: str | bytes) -> Writer:
    """Return what writes a file of this content."""

    def write(path: Path) -> None:
        path.unlink(missing_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    return write


def _target(settings: str) -> Writer:
    """Return what writes a file with a target that has these settings, too."""
    return _text(TARGET.format(settings))


def _pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def _with_policy(make: Writer) -> Writer:
    """Return a function that writes a file with a policy; ``make`` writes the manifest of that."""

    def write(path: Path) -> None:
        folder = path.parent / POLICY
        folder.mkdir(exist_ok=True)
        make(folder / "policy.json")
        _target(f"policy: {POLICY}")(path)

    return write


def _with_archive(pack: Callable[[], bytes]) -> Writer:
    """Return a function that writes a file with a policy; its archive is what ``pack`` returns."""

    def write(manifest: Path) -> None:
        data = pack()
        digest = hashlib.sha256(data).hexdigest()
        archive = manifest.with_name(f"arrays-{digest[:16]}.npz")
        archive.write_bytes(data)
        content = {"knobs": [{"name": "x", "grid": [1.0]}], "parameters": {}, "sha256": digest}
        _text(json.dumps(content | {"arrays": archive.name}))(manifest)

    return _with_policy(write)


def _packed(header: str, content: bytes = b"", zeros: int = 0) -> bytes:
    """Return an archive with one array, whose header need not be true, and millions of zeros."""
    text = header.encode() + b"\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("q.npy", "w") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content)
        for _ in range(zeros):
            file.write(bytes(1_000_000))
    return buffer.getvalue()


def _flagged(place: int, value: int) -> bytes:
    """Return an archive with a number in the entries of its table and its members replaced."""
    data = bytearray(_packed(HEADER.format("'<f8'", "(1,)"), bytes(8)))
    begin = data.index(b"PK\x01\x02")
    data[place] = data[begin + place + 2] = value
    return bytes(data)


BAD_FILES: Mapping[str, Writer] = {
    "no YAML": _text("targets: [\n"),
    "nothing": _text(""),
    "binary": _text(bytes(range(256))),
    "a pipe": _pipe,
    "a number of 400 digits": _target(f"seed: 1{'0' * 400}"),
    "a number of 6,000 digits": _target(f"seed: 1{'0' * 6000}"),
    "400 digits in a knob": _target(f"knobs: {{max_batch_size: 1{'0' * 400}}}"),
    "400 digits in a bound": _target(f"knobs: {{max_batch_size: {{least: 1{'0' * 400}}}}}"),
    "6,000 octal digits": _target(f"seed: 0o1{'0' * 6000}"),
    "a truth that is none": _target("canary: !!bool perhaps"),
    "a tag of Python": _target("seed: !!python/object/apply:os.getpid []"),
    "a tag of bytes": _target("time_zone: !!binary AAAA"),
    "an escape beyond Unicode": _text('targets: "\\U99999999"\n'),
    "half a character": _target('time_zone: "\\ud800"'),
    "a name with a null": _text('state: "a\\0b"\n' + TARGET.format("mode: observe")),
    "a policy's name of 300 characters": _target(f"policy: {'x' * 300}"),
    "a policy that is a pipe": _with_policy(_pipe),
    "a policy nested 100,000 deep": _with_policy(_text("[" * 100_000)),
    "a header of an array without its end": _with_archive(lambda: _packed("{'descr': (")),
    "an array of a petabyte": _with_archive(lambda: _packed(HEADER.format("'<f8'", f"({10**15},)"))),
    "an array of objects": _with_archive(lambda: _packed(HEADER.format("'|O'", "(1,)"), b"\x80\x04N.")),
    "300 MB in 300 kB": _with_archive(lambda: _packed(HEADER.format("'<f8'", "(37500000,)"), zeros=300)),
    "an encrypted array": _with_archive(lambda: _flagged(6, 1)),
    "a way of packing that nobody knows": _with_archive(lambda: _flagged(8, 99)),
    "an array that is no archive": _with_archive(lambda: b"\x93NUMPY\x01\x00"),
}
"""What is wrong with a file, and what writes it, with whatever it names, over the file that is there."""

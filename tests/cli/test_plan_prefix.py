"""``tuner plan prefix``: what it finds, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.command_line import Run
from tests.planning.prefix.networks import onnx_variant, some_rows
from tuner.planning.prefix.onnx_model import load_onnx, onnx_part


def test_what_is_shared_is_shown_stored_and_cut(run: Run) -> None:
    """Two variants are a family, a third network is not; the parts give the model's answers."""
    for place, (name, body) in enumerate({"a": 0, "b": 0, "c": 7}.items()):
        Path(f"{name}.onnx").write_bytes(onnx_variant(name, body=body, head=place).SerializeToString())

    code, out, err = run(
        "plan", "prefix", "a.onnx", "b.onnx", "c.onnx", "--json", "shared.json", "--parts=parts"
    )

    stored = json.loads(Path("shared.json").read_text())["families"]
    assert (code, err) == (0, "")
    assert "3 models by the prefix they share" in out
    assert [one["models"] for one in stored] == [["a", "b"], ["c"]]
    assert [one["name"] for one in stored] == ["prefix-0", None]
    assert sorted(path.name for path in Path("parts").iterdir()) == [
        "a.suffix.onnx",
        "b.suffix.onnx",
        "prefix-0.onnx",
    ]
    whole, prefix, suffix = (
        onnx_part(load_onnx(Path(name))) for name in ("b.onnx", "parts/prefix-0.onnx", "parts/b.suffix.onnx")
    )
    np.testing.assert_allclose(suffix(prefix(some_rows(1)))[0], whole(some_rows(1))[0], rtol=1e-5, atol=1e-6)


def test_nodes_may_have_any_order(run: Run) -> None:
    """As for a server; the parts have an order in which they can be computed, and the model's answers."""
    for place, name in enumerate("ab"):
        model = onnx_variant(name, head=place)
        nodes = list(model.graph.node)
        del model.graph.node[:]
        model.graph.node.extend(reversed(nodes))
        Path(f"{name}.onnx").write_bytes(model.SerializeToString())

    code, _, err = run("plan", "prefix", "a.onnx", "b.onnx", "--json", "shared.json", "--parts=parts")

    assert (code, err) == (0, "")
    assert json.loads(Path("shared.json").read_text())["families"][0]["operations"] == 4
    whole, prefix, suffix = (
        onnx_part(load_onnx(Path(name))) for name in ("b.onnx", "parts/prefix-0.onnx", "parts/b.suffix.onnx")
    )
    np.testing.assert_allclose(suffix(prefix(some_rows(1)))[0], whole(some_rows(1))[0], rtol=1e-5, atol=1e-6)


def test_parts_that_no_file_can_hold_are_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any is written; what is shared is shown."""
    for place, name in enumerate("ab"):
        Path(f"{name}.onnx").write_bytes(onnx_variant(name, head=place).SerializeToString())
    monkeypatch.setattr("tuner.cli.plan_prefix.LARGEST_PART", 200)

    code, out, err = run("plan", "prefix", "a.onnx", "b.onnx", "--parts", "parts")

    assert code == 2
    assert "2 models by the prefix they share" in out
    assert "error: --parts: prefix-0 has" in " ".join(err.split())
    assert not list(Path("parts").iterdir())


def test_a_part_is_not_written_over_a_model(run: Run) -> None:
    """A model may be called as the first prefix is, such as one that was cut before; nothing is written."""
    for place, name in enumerate(("a", "prefix-0")):
        Path(f"{name}.onnx").write_bytes(onnx_variant(name, head=place).SerializeToString())
    before = Path("prefix-0.onnx").read_bytes()

    code, _, err = run("plan", "prefix", "a.onnx", "prefix-0.onnx", "--parts", ".")

    assert code == 2
    assert err.startswith("error: --parts: prefix-0.onnx is read for MODEL.onnx, too")
    assert Path("prefix-0.onnx").read_bytes() == before
    assert not Path("a.suffix.onnx").exists()


def test_a_part_that_cannot_be_written_is_named(run: Run) -> None:
    """In one sentence; the parts are written when all work is done."""
    for name in "ab":
        Path(f"{name}.onnx").write_bytes(onnx_variant(name).SerializeToString())
    Path("parts/prefix-0.onnx").mkdir(parents=True)

    code, _, err = run("plan", "prefix", "a.onnx", "b.onnx", "--parts", "parts")

    assert code == 2
    assert err.startswith("error: cannot write parts/prefix-0.onnx: it is not a file")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ("a.onnx", "one model shares nothing"),
        ("a.onnx other/a.onnx", "two files are named a"),
        ("a.onnx text.onnx", "text.onnx: cannot be read as an ONNX model"),
        ("a.onnx none.onnx", "none.onnx: cannot be read as an ONNX model"),
        ("a.onnx sparse.onnx", "sparse: initializer 'few' is sparse, which cannot be read"),
        ("a.onnx nothing.onnx", "nothing: nothing makes 'ghost'"),
        ("a.onnx circle.onnx", "circle: nodes need each other's outputs"),
    ],
)
def test_mistakes(run: Run, files: str, said: str) -> None:
    """One error, exit code 2."""
    Path("a.onnx").write_bytes(onnx_variant("a").SerializeToString())
    Path("text.onnx").write_text("no model")
    sparse, nothing, circle = (onnx_variant("a") for _ in range(3))
    sparse.graph.sparse_initializer.add().values.name = "few"
    nothing.graph.node[1].input[0] = "ghost"
    circle.graph.node[0].input[0] = "ad"
    for name, model in {"sparse": sparse, "nothing": nothing, "circle": circle}.items():
        Path(f"{name}.onnx").write_bytes(model.SerializeToString())

    code, out, err = run("plan", "prefix", *files.split())

    assert (code, out) == (2, "")
    assert said in " ".join(err.split())

"""Tests of server models in files of any kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.envs.simulator.models import KINDS, AnyModel, load_model, model_from_json, server_of
from tuner.envs.simulator.server import ServerModel
from tuner.envs.simulator.tfserving_cpu import CPU_MODELS
from tuner.envs.simulator.tfserving_gpu import GPU_MODELS
from tuner.envs.tfserving_cpu import tfserving_cpu
from tuner.envs.triton_cpu import triton_cpu
from tuner.errors import InvalidInput

MODELS = (ServerModel(noise=0.4), CPU_MODELS["resnet"], GPU_MODELS["deepspeech"])


@pytest.mark.parametrize("suffix", ["json", "yaml", "yml"])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.kind)
def test_round_trip(tmp_path: Path, model: AnyModel, suffix: str) -> None:
    """A model of any kind is the same after being written and read, in either format."""
    path = tmp_path / f"model.{suffix}"
    model.save(path)

    assert load_model(path) == model
    assert model_from_json(model.to_json()) == model
    assert ("{" in path.read_text()) == (suffix == "json")


def test_kinds() -> None:
    """Every kind is called as its models say."""
    assert {name: kind().kind for name, kind in KINDS.items()} == {name: name for name in KINDS}


def test_a_file_without_a_kind() -> None:
    """Files from before there were kinds describe a Triton."""
    assert model_from_json({"cores": 3.0}) == ServerModel(cores=3.0)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("kind: tfserving_cpu\ncores: 4\nwork: -1\n", "work"),
        ("kind: tfserving_cpu\ncores: 4\nwork: much\n", "line 3.*work"),
        ("kind: tfserving_gpu\nalpah: 1\n", "line 2.*alpha"),
        ("kind: toaster\n", "tfserving_gpu"),
        ("- 1\n", "model.yaml"),
        ("kind: [1\n", "not valid YAML"),
        (None, "cannot be read"),
    ],
)
def test_bad_yaml(tmp_path: Path, text: str | None, named: str) -> None:
    """The message names file and field, and the line if there is one."""
    path = tmp_path / "model.yaml"
    if text is not None:
        path.write_text(text)

    with pytest.raises(InvalidInput, match=f"(?s){named}"):
        load_model(path)


def test_model_of_another_server() -> None:
    """An environment refuses a model of a server that it does not simulate."""
    with pytest.raises(InvalidInput, match="not of tfserving_cpu"):
        tfserving_cpu(server=ServerModel())
    with pytest.raises(InvalidInput, match="not of triton"):
        triton_cpu(server=CPU_MODELS["inception"])


@pytest.mark.parametrize("server", ["server.yaml", Path("server.yaml")])
def test_the_name_of_a_file_is_no_model(server: object) -> None:
    """The message says how one is read."""
    with pytest.raises(InvalidInput, match=r"server: 'server.yaml' is the name of a file.*load_model\(Path"):
        server_of(server, ServerModel, {"mlp": ServerModel()}, "mlp")


def test_the_name_of_a_model_is_no_file() -> None:
    """The message says where it belongs."""
    with pytest.raises(InvalidInput, match="server: 'resnet' is the name of a model; write model='resnet'"):
        tfserving_cpu(server="resnet")
    with pytest.raises(InvalidInput, match="server: 'mlp' is the name of a model; leave server out"):
        triton_cpu(server="mlp")

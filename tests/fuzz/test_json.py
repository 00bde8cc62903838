"""Ten thousand damaged answers of TensorFlow Serving's REST port, and of a Prometheus server."""

from __future__ import annotations

import contextlib
import json
import math
from random import Random

from tests.fuzz.mutation import damaged_text, rounds
from tuner.adapters.connection.web import WebAnswer
from tuner.adapters.tfserving.client import VersionStatus, read_labelled, read_versions, serving_version
from tuner.errors import InvalidInput
from tuner.profiler.indicator import read_number

VERSIONS = json.dumps(
    {
        "model_version_status": [
            {"version": "2", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}},
            {"version": "1", "state": "END", "status": {"error_code": "ABORTED", "error_message": "gone"}},
        ]
    }
)
LABELLED = json.dumps({"model_spec": {"name": "mlp", "signature_name": "", "version": "3"}, "metadata": {}})
VECTOR = json.dumps(
    {
        "status": "success",
        "data": {"resultType": "vector", "result": [{"metric": {"le": "1"}, "value": [1.5, "0.03"]}]},
    }
)
SCALAR = json.dumps({"status": "success", "data": {"resultType": "scalar", "result": [1.5, "0.03"]}})


def answer(random: Random, *texts: str) -> WebAnswer:
    text = damaged_text(random, random.choice(texts))
    return WebAnswer(200, "OK", text.encode("utf-8", "surrogatepass"))


@rounds
def test_rest(random: Random) -> bool:
    """The state of every version, or ValueError."""
    with contextlib.suppress(ValueError):
        if random.random() < 0.3:
            assert isinstance(answer(random, LABELLED).read(read_labelled), int)
            return True
        found = answer(random, VERSIONS).read(read_versions)
        assert all(isinstance(version, int) for version in found)
        assert all(isinstance(status, VersionStatus) for status in found.values())
        serving_version(found)
        return True
    return False


@rounds
def test_indicator(random: Random) -> bool:
    """A latency that can be, nothing, or a refusal."""
    with contextlib.suppress(InvalidInput):
        number = read_number(answer(random, VECTOR, SCALAR), "query")
        assert math.isnan(number) or 0 <= number < math.inf
        return True
    return False

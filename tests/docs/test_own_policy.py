"""The page on simulation says how to add a scheduling policy: its example is installed and used."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import Run
from tests.docs.page import ROOT, blocks
from tuner.errors import InvalidInput
from tuner.scheduling import catalogue
from tuner.testing.policy import PolicyContract, overload

PAGE = ROOT / "docs" / "simulate.md"
SCENARIO = """
policy: fifo
options: {largest: 4}
accelerators: 2
sessions: [{name: a, alpha_ms: 1, beta_ms: 5, slo_ms: 25, rate: 200}]
seconds: 1
"""
DISPATCHER = """
listen: {grpc: 127.0.0.1:9001}
policy: fifo
options: {largest: 4}
sessions: [{name: a, slo_ms: 25, backends: ["triton://127.0.0.1:8001/mlp"]}]
"""


def install(folder: Path, module: str, entries: dict[str, str]) -> None:
    """Put a package of one module into a folder, as an installer does."""
    (folder / "fifo_policy.py").write_text(module)
    (folder / "fifo-1.dist-info").mkdir()
    (folder / "fifo-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: fifo\nVersion: 1\n")
    listed = "".join(f"{name} = {value}\n" for name, value in entries.items())
    (folder / "fifo-1.dist-info" / "entry_points.txt").write_text(f"[tuner.policies]\n{listed}")


@pytest.fixture
def site(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder into which a package can be installed for this process; scenario.yaml asks for its policy."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    Path("scenario.yaml").write_text(SCENARIO)
    catalogue._added.cache_clear()
    yield folder
    catalogue._added.cache_clear()
    sys.modules.pop("fifo_policy", None)


@pytest.fixture
def installed(site: Path) -> None:
    """The example of the page is installed there, with the entry point that the page shows."""
    entries = tomllib.loads(blocks(PAGE, "toml")[0])["project"]["entry-points"]["tuner.policies"]
    install(site, blocks(PAGE, "python")[0], entries)


@pytest.mark.slow  # the simulator is compiled for it
@pytest.mark.usefixtures("installed")
def test_the_example_is_simulated(run: Run) -> None:
    """By its name, with its option, as ours are."""
    done = run("simulate", "scenario.yaml", "--json", "out.json")

    assert done.code == 0, done.err
    stored = json.loads(Path("out.json").read_text())
    assert stored["policy"] == "fifo"
    assert stored["bad_rate"] == 0
    assert 1 < stored["sessions"][0]["mean_batch"] <= 4


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_the_example_keeps_the_contract() -> None:
    """As the page's test says, which inherits it; here with the case of a flood."""
    namespace: dict[str, type[PolicyContract]] = {}
    exec(blocks(PAGE, "python")[1], namespace)
    contract = namespace["TestFifo"]()

    contract.test_overload_passes()
    for test in ("every_request_is_answered_once", "oldest_first", "batches_fit", "batches_never_overlap"):
        getattr(PolicyContract, f"test_{test}").hypothesis.inner_test(contract, case=overload())


@pytest.mark.usefixtures("installed")
def test_its_options_are_checked_as_ours(run: Run) -> None:
    """The names by the dataclass, the values by what it refuses."""
    Path("named.yaml").write_text(SCENARIO.replace("largest", "biggest"))
    Path("valued.yaml").write_text(SCENARIO.replace("largest: 4", "largest: 0"))

    named, valued = run("simulate", "named.yaml"), run("simulate", "valued.yaml")

    assert (named.code, valued.code) == (2, 2)
    assert "named.yaml line 3: options.biggest: fifo has no such option; use one of largest" in named.err
    assert "valued.yaml line 3: options: largest: must be at least 1" in valued.err


@pytest.mark.usefixtures("installed")
def test_the_dispatcher_takes_it(run: Run) -> None:
    """Its file names it like any other policy."""
    Path("dispatch.yaml").write_text(DISPATCHER)
    Path("other.yaml").write_text(DISPATCHER.replace("largest", "biggest"))

    assert run("dispatch", "dispatch.yaml", "--check").code == 0
    assert "fifo has no such option" in run("dispatch", "other.yaml", "--check").err


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("command", ["simulate", "goodput"])
def test_the_message_on_unknown_policies_offers_it(run: Run, command: str) -> None:
    """Beside ours."""
    Path("other.yaml").write_text(SCENARIO.replace("fifo", "fivo"))

    done = run(command, "other.yaml")

    assert done.code == 2
    assert "there is no 'fivo'; use one of symphony, " in done.err
    assert ", oracle, fifo, symphony_paper" in done.err


@pytest.mark.parametrize(
    ("module", "value", "said"),
    [
        ("", "nowhere_to_be_found", "which cannot be imported (ModuleNotFoundError: No module named"),
        ("1 / 0", "fifo_policy", "which cannot be imported (ZeroDivisionError: division by zero)"),
        ("", "fifo_policy", "which has no function `build`"),
        ("NUMBER = 1", "fifo_policy:NUMBER", "which is no module"),
    ],
)
def test_a_package_that_cannot_be_used_is_named(
    run: Run, site: Path, module: str, value: str, said: str
) -> None:
    """In one sentence, at the line of the policy, and only where it is asked for."""
    install(site, module, {"fifo": value})
    Path("ours.yaml").write_text(SCENARIO.replace("fifo", "eager").replace("options: {largest: 4}", ""))

    done = run("simulate", "scenario.yaml")

    assert done.code == 2
    assert f"scenario.yaml line 2: policy: 'fifo' needs {value} of the package fifo, {said}" in done.err
    assert done.err.endswith("repair or remove that package\n")
    assert run("simulate", "ours.yaml").code == 0


def test_a_policy_whose_functions_nobody_registered(run: Run, site: Path) -> None:
    """It is said before numba would say it in a hundred lines."""
    install(
        site, blocks(PAGE, "python")[0].replace("register(Fifo,", "str(Fifo) or ("), {"fifo": "fifo_policy"}
    )

    done = run("simulate", "scenario.yaml")

    assert done.code == 2
    assert (
        "`build` of fifo returns a Fifo, whose functions nobody registered; write register(Fifo" in done.err
    )


def test_a_policy_of_others_has_no_name_of_ours(site: Path) -> None:
    """Ours would run in its place."""
    install(site, "", {"eager": "fifo_policy"})

    with pytest.raises(InvalidInput, match="'eager' is one of ours, and the entry point of fifo_policy"):
        catalogue.options_of("eager")


def test_a_policy_of_others_has_no_name_of_a_preset(run: Run, site: Path) -> None:
    """A file that names it would get ours."""
    install(site, "", {"symphony_paper": "fifo_policy"})
    Path("preset.yaml").write_text(SCENARIO.replace("fifo", "symphony_paper").replace("largest: 4", ""))

    done = run("simulate", "preset.yaml")

    assert done.code == 2
    assert "policy: 'symphony_paper' is one of ours, and the entry point of fifo_policy" in done.err


def test_options_that_are_no_dataclass_are_refused(run: Run, site: Path) -> None:
    """At the line of the policy, before its options are read."""
    install(site, "class FifoOptions: largest = 4\ndef build(spec, options): pass", {"fifo": "fifo_policy"})

    done = run("simulate", "scenario.yaml")

    assert done.code == 2
    assert "scenario.yaml line 2: policy: FifoOptions of fifo is no dataclass; write @data" in done.err


def test_longer_names_have_options_too(site: Path) -> None:
    """The dataclass is called as the policy, in the writing of classes."""
    module = "from dataclasses import dataclass\n@dataclass\nclass LeastSlackOptions: pass\n"
    module += "def build(spec, options): pass"
    install(site, module, {"least_slack": "fifo_policy", "least-slack": "fifo_policy"})

    assert catalogue.options_of("least_slack").__name__ == "LeastSlackOptions"
    assert catalogue.options_of("least-slack") is catalogue.options_of("least_slack")


def test_who_distributes_requests_says_so(site: Path) -> None:
    """Then sessions may have sizes."""
    install(site, "DISTRIBUTES = True\ndef build(spec, options): pass", {"fifo": "fifo_policy"})

    assert catalogue.distributes("fifo")
    assert [catalogue.distributes(name) for name in ("eager", "kairos")] == [False, True]

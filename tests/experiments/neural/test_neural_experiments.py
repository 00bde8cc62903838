"""The estimator's training, and the servers that it is judged on."""

from __future__ import annotations

import math
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest

from tests.experiments.quick import quick
from tuner.agents.rrl.neural.inputs import INPUTS
from tuner.agents.rrl.neural.network import FACTORS, LEAST_DEVIATION, OUTPUTS, WIDTH
from tuner.envs.randomised import FAMILIES
from tuner.experiments.neural.held_out import ARMS, HeldOut, HeldOutTask
from tuner.experiments.neural.in_context import SEEN, InContext
from tuner.experiments.neural.pretrain import HELD_OUT, Pretrain, ServerBlock
from tuner.experiments.neural.samples import CONFIGURATIONS, Samples, draw_samples
from tuner.experiments.neural.servers import TRUTHS, HeldOutServer, tune
from tuner.experiments.neural.training import Recipe, join, loss_of, train, train_reader

pytestmark = pytest.mark.compiled


@pytest.fixture(scope="module")
def samples() -> Samples:
    """Windows of a few servers of every family."""
    return join([draw_samples(family, seed) for family in FAMILIES for seed in range(3)])


def test_the_same_seed_draws_the_same_windows() -> None:
    """Whatever was drawn before."""
    first, again, other = draw_samples("triton", 1), draw_samples("triton", 1), draw_samples("triton", 2)

    np.testing.assert_array_equal(first.rows, again.rows)
    np.testing.assert_array_equal(first.targets, again.targets)
    assert not np.array_equal(first.targets, other.targets)


def test_samples_are_complete_but_for_the_use_of_a_gpu(samples: Samples) -> None:
    """Servers without one have none to learn from."""
    assert np.isfinite(samples.rows).all()
    assert np.isfinite(samples.targets[:, : OUTPUTS - 1]).all()
    known = np.isfinite(samples.targets[:, -1]).reshape(-1, CONFIGURATIONS)
    assert known.all(axis=1).tolist() == [False] * 6 + [True] * 3


def test_the_loss_is_the_likelihood_of_a_normal_vector() -> None:
    """Against scipy: all windows of a server at once, with the covariance of factors and deviations."""
    torch = pytest.importorskip("torch")
    from scipy.stats import multivariate_normal

    generator = np.random.default_rng(0)
    count = 5
    outputs = generator.normal(0.0, 0.5, (1, count, WIDTH))
    targets = generator.normal(0.0, 1.0, (1, count, OUTPUTS))
    extra = generator.uniform(0.0, 0.3, (1, count))
    known = np.ones((1, OUTPUTS))

    ours = float(loss_of(*(torch.tensor(array) for array in (outputs, targets, extra, known))))

    values = []
    for column in range(OUTPUTS):
        mean, deviation = outputs[0, :, column], np.exp(outputs[0, :, OUTPUTS + column])
        loadings = outputs[0, :, 2 * OUTPUTS :].reshape(count, OUTPUTS, FACTORS)[:, column]
        covariance = loadings @ loadings.T + np.diag(deviation**2 + LEAST_DEVIATION**2 + extra[0])
        density = multivariate_normal(mean, covariance).logpdf(targets[0, :, column])
        values.append(-density - 0.5 * count * math.log(2.0 * math.pi))
    assert ours == pytest.approx(np.mean(values) / count, rel=1e-9)


def test_a_deviation_that_fell_below_the_least_can_rise_again() -> None:
    """The loss still pulls at it where windows differ from what is expected: there is no dead zone."""
    torch = pytest.importorskip("torch")
    outputs = torch.zeros((1, 3, WIDTH))
    outputs[..., OUTPUTS : 2 * OUTPUTS] = 2.0 * math.log(LEAST_DEVIATION)
    outputs.requires_grad_()
    targets = torch.full((1, 3, OUTPUTS), 5.0 * LEAST_DEVIATION)

    loss_of(outputs, targets, torch.zeros((1, 3)), torch.ones((1, OUTPUTS))).backward()  # type: ignore[no-untyped-call]

    assert (outputs.grad[..., OUTPUTS : 2 * OUTPUTS] < 0).all()


@pytest.mark.slow
def test_training_is_the_same_to_the_last_bit_and_learns(samples: Samples) -> None:
    """The same samples and recipe give the same weights; the loss falls."""
    pytest.importorskip("torch")
    recipe = Recipe(epochs=12, batch=3, hidden=(16,))
    losses: list[float] = []

    one, two = train(samples, recipe, progress=losses.append), train(samples, recipe)

    assert all(np.array_equal(a, b) for a, b in zip(one.layers, two.layers, strict=True))
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_pretraining_writes_weights_and_says_how_exact_they_are(tmp_path: Path) -> None:
    """Of every family, on servers that were not trained on."""
    pytest.importorskip("torch")
    experiment = quick(Pretrain, folder=tmp_path)
    blocks = [ServerBlock(family, 0, 2) for family in FAMILIES]
    held = [ServerBlock(family, HELD_OUT, experiment.checked) for family in FAMILIES]
    found = {block: [experiment.measure(block, 0)] for block in (*blocks, *held)}

    rows = list(experiment.rows(found))

    assert (tmp_path / "neural-pretrain" / "weights.npz").exists()
    assert {family for row in rows for family in FAMILIES if row.id.startswith(family)} == set(FAMILIES)


def test_a_network_that_reads_windows_heeds_what_they_showed_in_any_order() -> None:
    """And nothing that stands where no window was seen."""
    torch = pytest.importorskip("torch")
    from tuner.experiments.neural.attention import Attention

    torch.manual_seed(0)
    model = Attention().eval()
    rows, places = torch.randn(1, 5, INPUTS), torch.randn(1, 3, INPUTS)
    shown, seen = torch.randn(1, 3, OUTPUTS), torch.tensor([[1.0, 1.0, 0.0]])
    other = shown.clone()
    other[0, 2] = 9.0
    other[0, 1, 5] = math.nan  # no GPU

    with torch.no_grad():
        expected = model(rows, places, shown, seen)
        swapped = model(rows, places[:, [1, 0, 2]], shown[:, [1, 0, 2]], seen)
        beyond = model(rows, places, torch.where(torch.isfinite(other), other, shown), seen)
        unmeasured = model(rows, places, other, seen)
        none = model(rows, places, shown, torch.zeros(1, 3))

    torch.testing.assert_close(swapped, expected)
    torch.testing.assert_close(beyond, expected)
    assert torch.isfinite(unmeasured).all()
    assert not torch.allclose(unmeasured, expected)
    assert not torch.allclose(none, expected)


@pytest.mark.slow
def test_a_network_that_reads_windows_learns_the_same_each_time(samples: Samples) -> None:
    """What it expects without any window needs no window."""
    pytest.importorskip("torch")
    recipe, losses = Recipe(epochs=8, batch=3), list[float]()

    one = train_reader(samples, recipe, progress=losses.append)
    two = train_reader(samples, recipe)

    rows, shown = samples.rows[:CONFIGURATIONS], samples.targets[:CONFIGURATIONS]
    expected = one.outputs(rows, [3, 4], shown[[3, 4]])
    np.testing.assert_array_equal(two.outputs(rows, [3, 4], shown[[3, 4]]), expected)
    assert np.isfinite(one.outputs(rows, [], shown[:0])).all()
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_both_forms_are_compared_on_servers_held_out(tmp_path: Path) -> None:
    """Of every family, after each number of windows."""
    pytest.importorskip("torch")
    experiment = quick(InContext, folder=tmp_path)
    found = {block: [block.draw()] for block in experiment.tasks()}

    rows = list(experiment.rows(found))

    assert len(rows) == len(FAMILIES) * len(SEEN) * 2
    assert all(0 < row.measured < 5 for row in rows if row.measured is not None)


@pytest.mark.parametrize("truth", TRUTHS)
def test_a_held_out_server_has_a_best_configuration_that_keeps_its_slo(truth: str) -> None:
    """However its truth differs; all windows of it depend on its seed alone."""
    one, two = (HeldOutServer("triton", TRUTHS[truth], 7) for _ in range(2))
    best = int(np.argmin(one.expected))

    cost, measurement = one.measure(best)

    assert one.best < 1.0
    assert cost < 1.5
    assert two.measure(best)[0] == cost
    assert measurement.requests > 0
    one.restart()
    assert one.measure(best)[0] == cost


def test_an_agent_learns_from_the_watched_window_and_hears_of_the_rate_of_the_load() -> None:
    """Over all windows, as in the control loop; only its own picks are judged."""
    server = HeldOutServer("triton", TRUTHS["like the training"], 7)
    best, default = int(np.argmin(server.expected)), server.number
    agent = MagicMock()
    agent.select.return_value = best

    learning = tune(server, agent, 3)

    learned = [call.args for call in agent.update.call_args_list]
    assert [number for _, number, _, _ in learned] == [default, best, best, best]
    assert all(before is after for before, _, _, after in learned)
    heard, own = ([state.rate for state, *_ in learned], [state.seen["rate"] for state, *_ in learned])
    assert heard[0] == own[0]
    assert min(own[:2]) < heard[1] < max(own[:2])
    assert learning.above == learning.first == learning.settled == 0.0

    server.restart()
    untaught = MagicMock()
    untaught.select.return_value = best
    tune(server, untaught, 3, taught=False)
    assert [call.args[1] for call in untaught.update.call_args_list] == [best, best, best]


@pytest.mark.slow
def test_every_arm_tunes_a_server() -> None:
    """And its rows say so."""
    experiment = quick(HeldOut)
    task = HeldOutTask("triton", "like the training")

    rows = list(experiment.rows({task: [experiment.measure(task, experiment.first_seed)]}))

    assert all(sum(f", {arm}: " in row.id for row in rows) == 5 for arm in ARMS)

"""Tests of weight averaging: the values of both means, and that they go on after a resume."""

import numpy as np
import pytest
import torch
from torch import nn

from tools.failure import ExitCode, Failure
from train.averaging import AveragingConfig, AveragingKind, make_average


def _layer(value: float = 0.0) -> nn.Linear:
    layer = nn.Linear(2, 1)
    _set(layer, value)
    return layer


def _set(layer: nn.Linear, value: float) -> None:
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(value)


def _means(config: AveragingConfig, values: list[float]) -> list[float | None]:
    """What is deployed after each update, of weights that take these values."""
    layer, found = _layer(7.0), []
    average = make_average(layer, config)
    for number, value in enumerate(values, start=1):
        _set(layer, value)
        average.update(number)
        weights = average.weights()
        found.append(weights and float(weights["weight"][0, 1]))
        assert all(parameter[...].eq(value).all() for parameter in layer.parameters()), "what is trained stays"
    return found


def test_the_moving_average_forgets_the_initial_weights_in_a_short_run() -> None:
    """1.5: r = min(decay, (1 + t) / (10 + t)); after 300 updates nothing is left of the start (.999 alone: .74)."""
    found = _means(AveragingConfig(kind=AveragingKind.EMA), [1.0] * 300)
    assert found[0] == pytest.approx(7 * 2 / 11 + 9 / 11)
    assert found[1] == pytest.approx(found[0] * 3 / 12 + 9 / 12)
    assert found[-1] == pytest.approx(1.0, abs=1e-5)


def test_late_in_a_run_the_moving_average_has_the_decay_that_was_asked_for() -> None:
    values = [0.0] * 100 + [1.0] * 3
    found = _means(AveragingConfig(kind=AveragingKind.EMA, decay=0.5), values)
    assert found[-3:] == pytest.approx([0.5, 0.75, 0.875], abs=1e-6)
    assert _means(AveragingConfig(kind=AveragingKind.EMA, decay=0.0), values)[-1] == 1.0


def test_the_mean_of_the_latest_points_is_that_of_numpy() -> None:
    values = list(np.random.default_rng(0).normal(size=20).astype(np.float32))
    found = _means(AveragingConfig(kind=AveragingKind.LATEST, points=3, every=4), values)
    assert found[:3] == [None] * 3, "before the first point the weights themselves are deployed"
    assert found[3] == found[6] == pytest.approx(values[3])
    assert found[11] == pytest.approx(np.mean([values[3], values[7], values[11]]), abs=1e-6)
    assert found[19] == pytest.approx(np.mean([values[11], values[15], values[19]]), abs=1e-6)
    assert _means(AveragingConfig(kind=AveragingKind.LATEST, points=1, every=1), values)[-1] == values[-1]


@pytest.mark.parametrize("kind", [AveragingKind.EMA, AveragingKind.LATEST])
def test_a_restored_mean_goes_on_bit_by_bit(kind: AveragingKind) -> None:
    """T2: leaving the mean out shows."""
    config, layer = AveragingConfig(kind=kind, decay=0.9, points=3, every=2), _layer()
    straight = make_average(layer, config)
    values = np.random.default_rng(1).normal(size=20)
    for number, value in enumerate(values, start=1):
        if number == 8:
            saved = {name: tensor.clone() for name, tensor in straight.state_tensors().items()}
        _set(layer, value)
        straight.update(number)

    def resumed(tensors: dict[str, torch.Tensor], until: int) -> torch.Tensor:
        again = _layer()
        average = make_average(again, config)
        _set(again, values[6])
        average.load_state_tensors(tensors)
        for number in range(8, until + 1):
            _set(again, values[number - 1])
            average.update(number)
        return average.weights()["weight"]

    assert torch.equal(resumed(saved, 20), straight.weights()["weight"])
    assert not torch.equal(resumed(saved, 9), resumed({}, 9)), "without it the mean begins anew"


def test_no_average_is_none() -> None:
    assert make_average(_layer(), AveragingConfig()) is None


@pytest.mark.parametrize(("field", "value"), [("decay", 1.0), ("decay", -0.1), ("points", 0), ("every", -1)])
def test_numbers_with_which_there_is_no_average_are_refused(field: str, value: float) -> None:
    with pytest.raises(Failure, match=f"^averaging.{field} is {value}: give ") as caught:
        AveragingConfig(**{field: value})
    assert caught.value.code is ExitCode.BAD_FLAG

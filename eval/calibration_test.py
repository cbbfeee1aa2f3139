"""Temperature: it finds the one that was put in, from calibration tasks alone."""

import inspect

import numpy as np
import pytest

from eval.calibration import fit_temperature, tempered
from eval.scores import classification_scores


def _tasks(seed: int, *, sharpened: float, count: int = 30) -> list[tuple[np.ndarray, np.ndarray]]:
    """Calibrated predictions over three classes, and answers drawn from them; then made `sharpened` times as sharp."""
    generator, out = np.random.default_rng(seed), []
    for _ in range(count):
        logits = 1.5 * generator.normal(size=(200, 3))
        p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        answers = (generator.random((200, 1)) > p.cumsum(axis=1)).sum(axis=1)
        out.append((tempered(np.log(p), 1 / sharpened), answers))
    return out


@pytest.mark.parametrize("sharpened", [0.5, 1.0, 2.0, 4.0])
def test_the_temperature_that_was_put_in_is_found(sharpened: float) -> None:
    """6.7: over-confident predictions get a temperature above 1, timid ones below."""
    assert fit_temperature(_tasks(0, sharpened=sharpened)) == pytest.approx(sharpened, rel=0.06)


def test_it_mends_nll_and_ece_of_other_tasks_and_leaves_accuracy() -> None:
    """6.7: fitted on some tasks, judged on others."""
    temperature = fit_temperature(_tasks(1, sharpened=3.0))
    before, after = [], []
    for log_p, answers in _tasks(2, sharpened=3.0):
        before.append(classification_scores(np.exp(log_p), answers))
        after.append(classification_scores(np.exp(tempered(log_p, temperature)), answers))
    mean = {name: [np.mean([s[name] for s in scores]) for scores in (before, after)] for name in before[0]}
    assert mean["nll"][1] < mean["nll"][0] - 0.1
    assert mean["ece"][1] < mean["ece"][0] - 0.03
    assert mean["accuracy"][1] == mean["accuracy"][0]


def test_absent_classes_stay_absent_and_unanswerable_queries_take_no_part() -> None:
    """6.5, 6.7: a class of probability 0 has it at every temperature."""
    log_p = np.array([[np.log(0.9), np.log(0.1), -np.inf]] * 4)
    assert np.isneginf(tempered(log_p, 2.0)[:, 2]).all()
    assert np.exp(tempered(log_p, 2.0)).sum(axis=1) == pytest.approx(1.0)
    task = (log_p, np.array([0, 1, 2, 2]))
    assert fit_temperature([task]) == fit_temperature([(log_p[:2], np.array([0, 1]))])
    with pytest.raises(ValueError, match="no query whose class"):
        fit_temperature([(log_p[:2], np.array([2, 2]))])


def test_the_answers_that_are_scored_are_no_argument() -> None:
    """6.7: what is fitted sees calibration tasks and nothing else; applying it sees no label."""
    assert list(inspect.signature(fit_temperature).parameters) == ["tasks"]
    assert list(inspect.signature(tempered).parameters) == ["log_p", "temperature"]


@pytest.mark.parametrize("temperature", [0.0, -1.0, np.nan, np.inf])
def test_a_temperature_that_is_none_is_refused(temperature: float) -> None:
    """The message names argument and value."""
    with pytest.raises(ValueError, match="temperature is"):
        tempered(np.zeros((1, 2)), temperature)

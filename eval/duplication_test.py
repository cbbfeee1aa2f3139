"""Context duplication: what is measured is the mass on all copies, and it is measured on the duplicated table."""

import dataclasses

import numpy as np
import pytest

from eval.duplication import Duplication, duplicated, duplication
from eval.row_reading import Reader, block_weights, query_weights
from eval.small_network import rerandomised_network, small_config, small_network
from eval.subject import Subject
from eval.views import sample_episode
from model.classification_head import ClassificationHeadConfig, LengthScaling
from model.icl_transformer import AttentionPath
from model.network import Network
from priors.task import TaskKind
from tools.failure import BadInput, ExitCode

KINDS = list(TaskKind)
_ROW, _CONTEXT, _QUERY = 5, 20, 6


def _measured(network: Network, kind: TaskKind, *, copies: tuple[int, ...] = (0, 1, 4, 16)) -> Duplication:
    episode = sample_episode(kind, num_context=_CONTEXT, num_query=_QUERY)
    return duplication(network, episode, row=_ROW, copies=copies)


@pytest.mark.parametrize("kind", KINDS)
def test_the_mass_is_the_sum_over_the_row_and_its_copies(kind: TaskKind) -> None:
    """6.B: retrieval mass before and after, each on the table that the model really got."""
    network = rerandomised_network(kind)
    found = _measured(network, kind)
    subject = Subject(network=network, path=AttentionPath.REFERENCE).fresh()
    for index, copies in enumerate(found.copies):
        longer = duplicated(sample_episode(kind, num_context=_CONTEXT, num_query=_QUERY), row=_ROW, copies=copies)
        weights = query_weights(subject, subject.run([longer])).numpy()
        assert weights.shape == (_QUERY, _CONTEXT + copies)
        same = (longer.task.x[: longer.num_context] == longer.task.x[_ROW]).all(axis=1)
        assert same.sum() == copies + 1
        assert found.mass[index] == pytest.approx(weights[:, same].sum(axis=1), abs=1e-6)
        assert np.ptp(weights[:, same], axis=1) == pytest.approx(0, abs=1e-5)  # copies are alike, so is their weight


@pytest.mark.parametrize("kind", KINDS)
def test_the_mass_grows_with_the_copies_and_predictions_move(kind: TaskKind) -> None:
    """6.B: the phenomenon."""
    found = _measured(rerandomised_network(kind), kind)
    assert (np.diff(found.mass.mean(axis=1)) > 0.01).all() and (found.mass < 1).all()
    assert (np.diff(found.frozen_mass, axis=0) > 0).all()
    assert found.moved[0] == pytest.approx(0, abs=0) and found.moved[-1].mean() > 1e-3
    assert (np.abs(found.towards) <= found.moved + 1e-6).all()


def test_frozen_mass_is_what_counting_copies_gives_where_no_weight_depends_on_the_row() -> None:
    """6.B: an untrained network reads uniformly, so k copies of N rows hold (k + 1) / (N + k)."""
    network = small_network(TaskKind.CLASSIFICATION)
    network.head.query.weight.data.zero_()
    network.head.query.bias.data.zero_()
    found = _measured(network, TaskKind.CLASSIFICATION)
    expected = (np.array(found.copies) + 1) / (_CONTEXT + np.array(found.copies))
    assert found.frozen_mass == pytest.approx(np.repeat(expected[:, None], _QUERY, axis=1), abs=1e-6)
    assert found.mass == pytest.approx(found.frozen_mass, abs=1e-6)


def test_frozen_mass_of_attention_is_its_softmax_with_the_rows_weight_repeated() -> None:
    """6.B: the same logit for every copy, in each head apart."""
    network, kind = rerandomised_network(TaskKind.REGRESSION), TaskKind.REGRESSION
    found, episode = _measured(network, kind), sample_episode(kind, num_context=_CONTEXT, num_query=_QUERY)
    subject = Subject(network=network, path=AttentionPath.REFERENCE).fresh()
    weights = block_weights(subject, subject.run([episode]), block=-1)[:, _CONTEXT:, :_CONTEXT].numpy()
    for index, copies in enumerate(found.copies):
        longer = np.concatenate([weights, np.repeat(weights[..., _ROW, None], copies, axis=-1)], axis=-1)
        longer = longer / longer.sum(-1, keepdims=True)
        own = longer[..., _ROW] + longer[..., _CONTEXT:].sum(-1)
        assert found.frozen_mass[index] == pytest.approx(own.mean(0), abs=1e-6)


def test_frozen_mass_of_a_head_is_its_softmax_with_the_rows_weight_repeated() -> None:
    """6.B: for one head without length scaling, weight w on the row becomes (k + 1)w / (1 + kw)."""
    config = small_config(TaskKind.CLASSIFICATION)
    head = ClassificationHeadConfig(num_heads=1, length_scaling=LengthScaling.NONE)
    config = dataclasses.replace(config, classification=head)
    found = _measured(rerandomised_network(TaskKind.CLASSIFICATION, config=config), TaskKind.CLASSIFICATION)
    copies, weight = np.array(found.copies)[:, None], found.mass[0]
    assert found.frozen_mass == pytest.approx((copies + 1) * weight / (1 + copies * weight), abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_without_copies_frozen_states_are_the_whole_model(kind: TaskKind) -> None:
    found = _measured(rerandomised_network(kind), kind)
    assert found.frozen_mass[0] == pytest.approx(found.mass[0], abs=1e-6)
    assert np.abs(found.frozen_mass[-1] - found.mass[-1]).max() > 1e-4  # earlier stages meet the copies too
    assert found.reader is (Reader.HEAD if kind is TaskKind.CLASSIFICATION else Reader.LAST_BLOCK)


def test_predictions_are_those_of_the_duplicated_table() -> None:
    """6.B: prediction before and after; a class that gains probability goes towards the row's label."""
    network, kind = rerandomised_network(TaskKind.CLASSIFICATION), TaskKind.CLASSIFICATION
    found, episode = _measured(network, kind), sample_episode(kind, num_context=_CONTEXT, num_query=_QUERY)
    for index, copies in enumerate(found.copies):
        run = Subject(network=network).fresh().run([duplicated(episode, row=_ROW, copies=copies)])
        own = run.outcomes[0].prediction[:, int(episode.task.y[_ROW])]
        assert found.prediction[index] == pytest.approx(own, abs=1e-5)
    assert found.towards == pytest.approx(found.prediction - found.prediction[0])


@pytest.mark.parametrize(("row", "copies"), [(_CONTEXT, (0, 1)), (-1, (0, 1)), (0, (1, 2)), (0, (0, 2, 2)), (0, ())])
def test_rows_outside_the_context_and_counts_that_do_not_ascend_are_refused(row: int, copies: tuple[int, ...]) -> None:
    episode = sample_episode(TaskKind.CLASSIFICATION, num_context=_CONTEXT, num_query=_QUERY)
    with pytest.raises(BadInput) as refusal:
        duplication(small_network(TaskKind.CLASSIFICATION), episode, row=row, copies=copies)
    assert refusal.value.code is ExitCode.BAD_FLAG

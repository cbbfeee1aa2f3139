"""Context rows and labels left out: how many, which, and that no query label has a part in it."""

import dataclasses

import pytest
import torch

from eval.records import network_inputs
from model.label_injection import LabelKind
from model.network import NetworkInputs
from priors.task import TaskKind
from tools.failure import ExitCode, Failure
from train.optimizer_config import OptimizerConfig
from train.regularisation import RegularisationConfig, thinned
from train.state import fresh_state
from train.step import StepOptions, training_step
from train.toy import small_network, toy_batch

_BOTH = RegularisationConfig(dropped_rows=0.3, dropped_labels=0.4)


def _inputs(tables: int = 4, rows: int = 200) -> NetworkInputs:
    return NetworkInputs(
        x_context=torch.zeros(tables, rows, 2),
        y_context=torch.zeros(tables, rows),
        x_query=torch.zeros(tables, 3, 2),
        column_kinds=torch.zeros(tables, 2, dtype=torch.int64),
        num_classes=2,
    )


def _thinned(inputs: NetworkInputs, config: RegularisationConfig = _BOTH, **place: int) -> NetworkInputs:
    return thinned(inputs, config, **{"seed": 0, "step": 0, "first_task": 0} | place)


def test_the_shares_that_are_asked_for_are_left_out() -> None:
    """5.H: of rows and of labels, each by itself."""
    found = _thinned(_inputs())
    assert float(found.context_mask.float().mean()) == pytest.approx(0.7, abs=0.05)
    assert float(found.label_mask.float().mean()) == pytest.approx(0.6, abs=0.05)
    only_rows = _thinned(_inputs(), RegularisationConfig(dropped_rows=0.3))
    assert only_rows.label_mask is None and torch.equal(only_rows.context_mask, found.context_mask)
    only_labels = _thinned(_inputs(), RegularisationConfig(dropped_labels=0.4))
    assert only_labels.context_mask is None and torch.equal(only_labels.label_mask, found.label_mask)
    assert _thinned(_inputs(), RegularisationConfig()).context_mask is None


def test_what_is_left_out_depends_on_seed_step_and_task_alone() -> None:
    """5.H, T3: two workers' shares are the two halves of one worker's batch; every step and seed differ."""
    whole, inputs = _thinned(_inputs()), _inputs()
    halves = [
        _thinned(dataclasses.replace(inputs, y_context=inputs.y_context[:2]), first_task=first) for first in (0, 2)
    ]
    assert torch.equal(torch.cat([half.context_mask for half in halves]), whole.context_mask)
    assert torch.equal(torch.cat([half.label_mask for half in halves]), whole.label_mask)
    for place in ({"step": 1}, {"seed": 1}, {"first_task": 1}):
        assert not torch.equal(_thinned(inputs, **place).context_mask, whole.context_mask)


def test_padding_stays_out_and_every_table_keeps_a_row() -> None:
    """5.7, 5.H: a context of two rows, with nearly all to be dropped."""
    mask = torch.zeros(4, 200, dtype=torch.bool)
    mask[:, [3, 7]] = True
    found = _thinned(dataclasses.replace(_inputs(), context_mask=mask), RegularisationConfig(dropped_rows=0.99))
    assert not (found.context_mask & ~mask).any()
    assert (found.context_mask.sum(1) >= 1).all()


def test_labels_that_were_hidden_stay_hidden() -> None:
    """5.B, 5.H: what is left out adds to the inputs' own mask."""
    own = torch.arange(200).expand(4, 200) % 2 == 0
    plain, found = _thinned(_inputs()), _thinned(dataclasses.replace(_inputs(), label_mask=own))
    assert torch.equal(found.label_mask, plain.label_mask & own)
    assert torch.equal(found.context_mask, plain.context_mask)


def test_every_table_keeps_a_row_that_has_its_label() -> None:
    """5.H: whatever the shares, and where most rows are padding or shown without their label already."""
    real, known = torch.zeros(4, 200, dtype=torch.bool), torch.zeros(4, 200, dtype=torch.bool)
    real[:, :20], known[:, 15:25] = True, True
    for step in range(20):
        for shares in ({"dropped_labels": 0.99}, {"dropped_rows": 0.99}, {"dropped_labels": 0.99, "dropped_rows": 0.9}):
            for own in (None, known):
                inputs = dataclasses.replace(_inputs(), context_mask=real, label_mask=own)
                found = _thinned(inputs, RegularisationConfig(**shares), step=step)
                shown = found.context_mask if found.label_mask is None else found.context_mask & found.label_mask
                assert shown.any(1).all(), (step, shares)
                assert not (shown & ~real).any() and (own is None or not (shown & ~own).any())


@pytest.mark.parametrize("kind", list(TaskKind))
def test_a_step_with_them_trains_and_no_query_label_enters_the_forward_pass(kind: TaskKind) -> None:
    """5.H: predictions with rows and labels left out are equal whatever the answers are; the loss is finite."""
    config = small_network(LabelKind(kind.value))
    state = fresh_state(config, OptimizerConfig(), seed=0, device=torch.device("cpu"), identity={})
    batch = toy_batch(kind)
    seen: list[torch.Tensor] = []
    state.network.icl.register_forward_hook(lambda _module, _args, output: seen.append(output[1].detach().clone()))
    for _ in range(2):
        state.network(thinned(network_inputs(batch), _BOTH, seed=0, step=3, first_task=0))
        batch.y_query[:] = batch.y_query[:, ::-1].copy()
    assert torch.equal(*seen)
    result = training_step(
        state.network,
        state.optimizer,
        batch=batch,
        factor=1.0,
        dtype=torch.float32,
        options=StepOptions(smoothing=0.1 if kind is TaskKind.CLASSIFICATION else 0.0),
        thin=lambda inputs, first: thinned(inputs, _BOTH, seed=0, step=3, first_task=first),
    )
    assert not result.skipped and result.loss > 0
    assert torch.equal(seen[-1], seen[0]), "the step's own forward pass leaves the same out"


@pytest.mark.parametrize("field", ["dropped_rows", "dropped_labels", "label_smoothing"])
@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_shares_that_are_none_are_refused(field: str, share: float) -> None:
    """One line names field and value."""
    with pytest.raises(Failure, match=rf"regularisation.{field} is {share}") as caught:
        RegularisationConfig(**{field: share})
    assert caught.value.code is ExitCode.BAD_FLAG

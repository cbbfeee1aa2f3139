"""Tests of priors.rule_outcomes: what each rule says of rows whose bins are known."""

import itertools
from collections.abc import Callable

import pytest
import torch

from priors.draws import Draws
from priors.rule_outcomes import OUTCOMES, Outcome, alternatives, count, lookup, nested, parity

TASKS, DRIVERS, ROWS = 200, 9, 300


def bins_of(levels: int) -> torch.Tensor:
    """[200, 9, 300] random bins."""
    return torch.randint(levels, (TASKS, DRIVERS, ROWS), generator=torch.Generator().manual_seed(0))


def told(apply: Outcome, bins: torch.Tensor, *, driver: int) -> torch.Tensor:
    """[200] whether the outcome of any row changes with the bin of one driver."""
    changed = bins.clone()
    changed[:, driver] = (changed[:, driver] + 1) % (int(bins.max()) + 1)
    return (apply(changed) != apply(bins)).any(-1)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_rule_answers_rows_that_it_was_not_drawn_with_one_by_one(outcome: Callable[..., Outcome]) -> None:
    bins = bins_of(3)
    apply = outcome(Draws(1), bins, max_classes=5)
    everything = apply(bins)
    assert everything.shape == (TASKS, ROWS) and everything.min() == 0
    assert torch.equal(apply(bins[:, :, 7:9]), everything[:, 7:9])
    assert torch.equal(apply(bins.flip(-1)), everything.flip(-1))


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_most_tasks_have_a_rule_of_their_own(outcome: Callable[..., Outcome]) -> None:
    bins = bins_of(2)[:1].expand(TASKS, -1, -1)
    answers = outcome(Draws(1), bins, max_classes=5)(bins)
    assert len(answers.unique(dim=0)) == 2 if outcome is parity else len(answers.unique(dim=0)) > TASKS / 5


def test_parity_is_the_odd_sum_of_two_or_three_drivers() -> None:
    bins = bins_of(2)
    answers = parity(Draws(1), bins, max_classes=2)(bins)
    two, three = bins[:, :2].sum(1) % 2, bins[:, :3].sum(1) % 2
    is_two, is_three = (answers == two).all(-1), (answers == three).all(-1)
    assert (is_two ^ is_three).all() and 0.25 < is_three.float().mean() < 0.55


def test_a_lookup_has_an_entry_for_every_cell_of_two_or_three_drivers() -> None:
    bins = bins_of(4)
    apply = lookup(Draws(1), bins, max_classes=6)
    cells = torch.tensor(list(itertools.product(range(4), repeat=3))).T.expand(TASKS, -1, -1)
    entries = apply(torch.cat([cells, torch.zeros((TASKS, 6, 64), dtype=torch.int64)], dim=1))
    assert torch.equal(apply(bins), entries.gather(1, 16 * bins[:, 0] + 4 * bins[:, 1] + bins[:, 2]))
    classes = entries.amax(-1) + 1
    assert set(classes.tolist()) == {2, 3, 4, 5, 6}
    uses_third = told(apply, bins, driver=2)
    assert 0.3 < uses_third.float().mean() < 0.7 and not told(apply, bins, driver=3).any()
    assert len(entries[uses_third].T.unique(dim=0)) == 64 and len(entries[~uses_third].T.unique(dim=0)) == 16


def test_counts_rise_with_each_used_driver_alone_and_both_sides_have_rows() -> None:
    bins = bins_of(2)
    apply = count(Draws(1), bins, max_classes=2)
    answers = apply(bins)
    assert (answers.amin(-1) == 0).all() and (answers.amax(-1) >= 1).all() and answers.max() == 2
    for driver in range(DRIVERS):
        more = bins.clone()
        more[:, driver] = 1
        assert (apply(more) >= answers).all()
    used = torch.stack([told(apply, bins, driver=driver) for driver in range(DRIVERS)], dim=1).sum(-1)
    assert used.min() == 3 and used.max() == 9


def test_nested_rules_read_six_drivers_at_most_and_need_no_more_than_two_grades() -> None:
    """The first three drivers matter only by their grade: at most three answers to each state of the others."""
    bins = bins_of(3)
    apply = nested(Draws(1), bins, max_classes=2)
    assert not any(told(apply, bins, driver=driver).any() for driver in (6, 7, 8))
    assert all(told(apply, bins, driver=driver).float().mean() > 0.2 for driver in range(6))
    first = torch.tensor(list(itertools.product(range(3), repeat=3))).T
    second = bins[:, 3:, :20]
    grid = torch.cat([first.repeat(1, 20).expand(TASKS, -1, -1), second.repeat_interleave(27, -1)], dim=1)
    columns = apply(grid).view(TASKS, 20, 27).transpose(1, 2)
    assert max(len(task.unique(dim=0)) for task in columns) == 3


def test_alternatives_ask_for_what_some_row_has_and_more_of_them_hold_more_often() -> None:
    """A term of two tests of three bins holds for 1 of 9 rows, one of three for 1 of 27; two to eight terms."""
    bins = bins_of(3)
    answers = alternatives(Draws(1), bins, max_classes=2)(bins)
    assert set(answers.unique().tolist()) == {0, 1} and answers.any(-1).all()
    shares = answers.float().mean(-1)
    assert 1 / 27 < shares.min() < 2 / 9 and 1 / 3 < shares.max() < 8 / 9

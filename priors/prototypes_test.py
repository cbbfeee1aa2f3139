"""Tests of priors.prototypes: distances, votes and clusters are what they say, recomputed independently."""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.ensemble import ExtraTreesClassifier

from priors.causes import CauseConfig, draw_causes
from priors.columns import ColumnConfig, Columns, draw_columns
from priors.draft import Draft, TableRequest
from priors.draws import Draws
from priors.prototypes import (
    Form,
    PrototypesConfig,
    add_slopes,
    draw_classes,
    measure_belonging,
    measure_likeness,
    sample_prototypes,
)
from priors.task import ColumnKind, TaskKind

NEAREST = PrototypesConfig(form_weights=(1, 0, 0), slope_share=0.0, cut_share=0.0)
BLENDED = dataclasses.replace(NEAREST, form_weights=(0, 1, 0))
CLUSTERS = dataclasses.replace(NEAREST, form_weights=(0, 0, 1))
NUMBERS = ColumnConfig(numbers_share=1.0, discrete_share=0.0, literal_share=0.0, constant_share=0.0, copied_share=0.0)
CODES = ColumnConfig(numbers_share=0.0, discrete_share=1.0)


def request_for(
    kind: TaskKind,
    *,
    count: int = 40,
    rows: int = 200,
    features: int = 5,
    columns: ColumnConfig = NUMBERS,
    causes: CauseConfig = CauseConfig(),
) -> TableRequest:
    """A request of at most 10 classes."""
    return TableRequest(
        kind=kind, count=count, rows=rows, features=features, max_classes=10, causes=causes, columns=columns
    )


def make(config: PrototypesConfig, *, request: TableRequest, seed: int = 0) -> Draft:
    """Tasks as a mixture would get them."""
    return sample_prototypes(Draws(seed), config, request=request)


def table_of(columns: ColumnConfig, *, features: int = 6) -> Columns:
    """30 tables of 150 rows."""
    raw = draw_causes(Draws(1), CauseConfig(), count=30, causes=features, rows=150)
    return draw_columns(Draws(2), raw, config=columns)


def importance_of(*, features: int = 6) -> torch.Tensor:
    """[30, C] weights of which the first is 0."""
    weights = Draws(3).uniform((30, features), low=0.2, high=1.0)
    weights[:, 0] = 0.0
    return weights


@pytest.mark.parametrize("columns", [NUMBERS, CODES, ColumnConfig(numbers_share=0.0, discrete_share=0.0)])
def test_distances_weigh_numbers_by_importance_and_compare_categories_by_equality(columns: ColumnConfig) -> None:
    table, weights = table_of(columns), importance_of()
    number = torch.arange(2, 32)
    config = dataclasses.replace(NEAREST, mixed_share=0.0, match_share=1.0)
    likeness = measure_likeness(Draws(0), config, table=table, importance=weights, number=number)
    values, signal = table.values.double().numpy(), table.signal.double().numpy()
    equal_seen = 0
    for task in range(30):
        w = weights[task].double().numpy()
        category = [c for c in range(6) if table.kinds[task, c] == ColumnKind.CATEGORY and w[c] > 0]
        matched = sorted(category, key=lambda c: -w[c])[:4]
        assert likeness.matched[task] == len(matched)
        equal_seen += len(matched)
        for prototype in range(int(number[task])):
            row = int(likeness.index[task, prototype])
            square = np.zeros(150)
            for c in range(6):
                differ = values[task, c] != values[task, c, row]
                gap = signal[task, c] - signal[task, c, row]
                square += w[c] ** 2 * (2 * differ if c in matched else gap**2)
            np.testing.assert_allclose(likeness.distances[task, prototype].numpy(), square, atol=1e-3)
        assert (likeness.distances[task, int(number[task]) :] == torch.inf).all()
    assert (equal_seen > 20) == (columns is not NUMBERS)


@pytest.mark.parametrize("mixed", [0.0, 1.0])
def test_irrelevant_columns_do_not_change_distances_and_others_do(mixed: float) -> None:
    table, weights = table_of(NUMBERS), importance_of()
    config = dataclasses.replace(NEAREST, mixed_share=mixed)
    number = torch.full((30,), 7)
    before = measure_likeness(Draws(0), config, table=table, importance=weights, number=number).distances
    for column in (0, 1):
        signal = table.signal.clone()
        signal[:, column] = signal[:, column].roll(1, dims=-1)
        other = dataclasses.replace(table, signal=signal)
        after = measure_likeness(Draws(0), config, table=other, importance=weights, number=number).distances
        assert ((after - before).abs().amax((1, 2)) > 1e-3).all() if column else torch.equal(after, before)


def test_mixed_distances_are_those_of_turned_and_stretched_columns() -> None:
    """They are squared lengths of A·w∘(x − p) for one matrix A per task, other than the diagonal one."""
    table, weights = table_of(NUMBERS), importance_of()
    number = torch.full((30,), 9)
    found = {}
    for mixed in (0.0, 1.0):
        config = dataclasses.replace(NEAREST, mixed_share=mixed)
        likeness = measure_likeness(Draws(0), config, table=table, importance=weights, number=number)
        gap = (table.signal * weights.unsqueeze(-1)).double().transpose(1, 2)
        gap = gap - gap.gather(1, likeness.index[:, :1].unsqueeze(-1).expand(-1, 150, 6))
        pairs = (gap.unsqueeze(-1) * gap.unsqueeze(-2)).flatten(2)[..., [0, *range(7, 36)]]
        square = likeness.distances[:, 0].double().unsqueeze(-1)
        metric = torch.linalg.lstsq(pairs, square, driver="gelsd").solution
        assert (pairs @ metric - square).abs().max() < 2e-3
        identity = gap.square().sum(-1, keepdim=True)
        found[mixed] = (identity - square).abs().amax((1, 2))
    assert found[0.0].max() < 1e-3 and found[1.0].min() > 0.1


def test_the_nearest_prototype_decides_alone() -> None:
    distances = Draws(0).uniform((20, 6, 50))
    form = torch.full((20,), int(Form.NEAREST))
    belonging = measure_belonging(Draws(1), distances, form=form, member=torch.zeros((20, 50), dtype=torch.int64))
    for task in range(20):
        for row in range(50):
            nearest = min(range(6), key=lambda k: float(distances[task, k, row]))
            assert belonging[task, :, row].tolist() == [float(k == nearest) for k in range(6)]


def test_members_belong_to_their_own_cluster() -> None:
    member = Draws(0).integers((20, 50), low=0, high=5)
    form = torch.full((20,), int(Form.CLUSTERS))
    belonging = measure_belonging(Draws(1), Draws(2).uniform((20, 6, 50)), form=form, member=member)
    assert torch.equal(belonging, torch.nn.functional.one_hot(member, 6).transpose(1, 2).float())


def test_blended_weights_are_gaussian_or_a_power_of_the_distance() -> None:
    """Log ratios of weights are proportional to differences of d², or of log(d² / mean of the smallest + 0.02)."""
    distances = Draws(0).uniform((200, 5, 60), high=3.0)
    distances[:, 4] = torch.inf
    form = torch.full((200,), int(Form.BLENDED))
    belonging = measure_belonging(Draws(1), distances, form=form, member=torch.zeros((200, 60), dtype=torch.int64))
    torch.testing.assert_close(belonging.sum(1), torch.ones(200, 60))
    assert (belonging[:, 4] == 0).all()
    near = distances[:, :4].double()
    ratio = belonging[:, 0].double().log() - belonging[:, 1].double().log()
    scale = near.amin(1).mean(-1).view(-1, 1, 1)
    straight, fits = {}, {}
    for name, loudness in (("gaussian", near / scale), ("power", (near / scale + 0.02).log())):
        gap = loudness[:, 0] - loudness[:, 1]
        safe = ratio.isfinite() & (belonging[:, 0] > 1e-20) & (belonging[:, 1] > 1e-20)
        gap, wanted = gap * safe, torch.where(safe, ratio, 0.0)
        slope = (gap * wanted).sum(-1, keepdim=True) / gap.square().sum(-1, keepdim=True)
        straight[name] = (wanted - slope * gap).abs().amax(-1) < 1e-2
        fits[name] = -slope.squeeze(-1)[straight[name]]
    assert (straight["gaussian"] ^ straight["power"]).all()
    assert 0.25 < straight["power"].float().mean() < 0.55
    assert 1.0 <= fits["power"].min() and fits["power"].max() <= 3.01
    assert 1 / 3.01 <= fits["gaussian"].min() and fits["gaussian"].max() <= 5.01
    assert fits["power"].std() > 0.2 and fits["gaussian"].std() > 0.5


def test_one_relevant_number_is_cut_into_as_many_intervals_as_prototypes_at_most() -> None:
    draft = make(NEAREST, request=request_for(TaskKind.REGRESSION, features=1))
    order = draft.columns.signal.argsort(-1).expand(-1, 3, -1)
    changes = (draft.scores.gather(2, order).diff(dim=-1).abs().amax(1) > 1e-4).sum(-1)
    assert (changes <= draft.facts["prototypes"] - 1).all() and (changes >= draft.facts["prototypes"] / 2 - 1).all()
    assert draft.facts["prototypes"].min() <= 3 and draft.facts["prototypes"].max() > 20


def test_slopes_make_the_pieces_straight_lines() -> None:
    config = dataclasses.replace(NEAREST, slope_share=1.0, max_prototypes=8)
    draft = make(config, request=request_for(TaskKind.REGRESSION, features=1))
    order = draft.columns.signal.argsort(-1)
    x, y = draft.columns.signal.gather(2, order)[:, 0].double(), draft.scores[:, 0].gather(1, order[:, 0]).double()
    turn = (y[:, 2:] - y[:, :-2]) * (x[:, 1:-1] - x[:, :-2]) - (y[:, 1:-1] - y[:, :-2]) * (x[:, 2:] - x[:, :-2])
    straight = (turn.abs() < 1e-4).float().mean(-1)
    assert straight.min() > 0.85 and ((y.diff(dim=-1).abs() < 1e-5).float().mean(-1) < 0.5).all()


def test_every_prototype_has_its_own_slope_and_none_at_itself() -> None:
    table, weights = table_of(NUMBERS, features=2), torch.ones((30, 2))
    likeness = measure_likeness(Draws(0), NEAREST, table=table, importance=weights, number=torch.full((30,), 3))
    belonging = torch.nn.functional.one_hot(likeness.distances.argmin(1), 3).transpose(1, 2).float()
    rise = add_slopes(Draws(1), torch.zeros((30, 3, 150)), likeness=likeness, belonging=belonging, share=1.0)
    assert rise.gather(2, likeness.index.unsqueeze(1).expand(-1, 3, -1)).abs().max() < 1e-3
    apart = []
    for task in range(30):
        slopes = []
        for cell in range(3):
            inside = belonging[task, cell] > 0
            gap = (likeness.points[task][:, inside] - likeness.centres[task, :, cell : cell + 1]).T.double()
            if len(gap) >= 20:
                slopes.append(torch.linalg.lstsq(gap, rise[task, 0, inside].double(), driver="gelsd").solution)
                assert (gap @ slopes[-1] - rise[task, 0, inside]).abs().max() < 1e-3
        apart += [float((a - b).norm() / a.norm()) for a, b in zip(slopes, slopes[1:], strict=False)]
    assert len(apart) > 20 and np.median(apart) > 0.5
    none = add_slopes(Draws(1), torch.zeros((30, 3, 150)), likeness=likeness, belonging=belonging, share=0.0)
    assert (none == 0).all()


def test_prototypes_carry_classes_and_classes_have_their_own_numbers_of_prototypes() -> None:
    draft = make(NEAREST, request=request_for(TaskKind.CLASSIFICATION, rows=300))
    numbers = []
    for scores, classes in zip(draft.scores, draft.classes, strict=True):
        _, cell = (scores * 1e3).round().unique(dim=1, return_inverse=True)
        carried = {code: classes[cell == code].unique() for code in cell.unique().tolist()}
        assert all(len(found) == 1 for found in carried.values())
        sizes = np.bincount([int(found) for found in carried.values()])
        numbers.append(sizes[sizes > 0])
    assert (draft.facts["own_flips"] == 0).all()
    assert sum(len(sizes) == 2 for sizes in numbers) >= 8 and max(len(sizes) for sizes in numbers) >= 5
    assert sum(sizes.max() >= 3 * sizes.min() for sizes in numbers) >= 5


@pytest.mark.parametrize("drawn", [0.0, 1.0])
def test_labels_are_the_winners_of_the_vote_or_drawn_in_proportion_to_it(drawn: float) -> None:
    belonging = torch.tensor([0.7, 0.3]).view(1, 2, 1).expand(50, 2, 400)
    config = dataclasses.replace(BLENDED, drawn_share=drawn)
    form, number = torch.full((50,), int(Form.BLENDED)), torch.full((50,), 2)
    request = request_for(TaskKind.CLASSIFICATION, count=50, rows=400)
    classes, lost = draw_classes(Draws(0), config, belonging=belonging, form=form, number=number, request=request)
    assert float(lost.mean()) == pytest.approx(0.3 * drawn, abs=0.02)
    assert (classes == 0).float().mean() == pytest.approx(1 - 0.3 * drawn, abs=0.02) and set(
        classes.unique().tolist()
    ) == ({0, 1} if drawn else {0})


def test_votes_of_a_class_add_up() -> None:
    """Two quiet prototypes of one class outvote a louder one, wherever the third has the class of the second."""
    belonging = torch.tensor([0.4, 0.3, 0.3]).view(1, 3, 1).expand(200, 3, 16)
    form, number = torch.full((200,), int(Form.BLENDED)), torch.full((200,), 3)
    config = dataclasses.replace(BLENDED, drawn_share=0.0)
    request = request_for(TaskKind.CLASSIFICATION, count=200, rows=16)
    classes, _ = draw_classes(Draws(0), config, belonging=belonging, form=form, number=number, request=request)
    assert (classes == classes[:, :1]).all()
    assert 0.25 < (classes[:, 0] == 1).float().mean() < 0.75


def test_clusters_move_and_widen_as_many_columns_as_are_relevant() -> None:
    config = dataclasses.replace(CLUSTERS, max_prototypes=3)
    plain = CauseConfig(independent_share=1.0, duplicate_share=0.0)
    draft = make(config, request=request_for(TaskKind.REGRESSION, rows=800, causes=plain, count=60))
    moved, widened = torch.zeros((60, 5)), torch.zeros((60, 5))
    for task, signal in enumerate(draft.columns.signal):
        _, cell = (draft.scores[task] * 1e3).round().unique(dim=1, return_inverse=True)
        insides = [signal[:, cell == code] for code in cell.unique()]
        assert len(insides) <= draft.facts["prototypes"][task]
        moved[task] = sum(inside.shape[1] / 800 * inside.mean(-1).square() for inside in insides)
        spans = torch.stack([inside.std(-1).log() for inside in insides if inside.shape[1] >= 100])
        widened[task] = spans.amax(0) - spans.amin(0)
    found = ((moved > 0.03) | (widened > 0.6)).sum(-1)
    assert (found <= draft.facts["relevant"]).all() and (found >= 1).float().mean() > 0.8
    assert (found == draft.facts["relevant"]).float().mean() > 0.4
    assert {1, 5} <= set(draft.facts["relevant"].tolist()) and (widened > 0.6).any()


@pytest.mark.parametrize("kind", TaskKind)
def test_classes_are_fixed_or_left_to_be_cut_and_constant_columns_do_not_count(kind: TaskKind) -> None:
    config = dataclasses.replace(PrototypesConfig(), cut_share=0.5)
    flat = dataclasses.replace(NUMBERS, constant_share=1.0)
    draft = make(config, request=request_for(kind, count=200, rows=64, columns=flat))
    cut = (draft.classes == -1).all(-1)
    assert (cut | (draft.classes >= 0).all(-1)).all() and draft.classes.max() < 10
    assert cut.all() if kind is TaskKind.REGRESSION else 0.35 < cut.float().mean() < 0.65
    assert (draft.facts["own_flips"][cut] == 0).all()
    assert (draft.facts["relevant"] <= (draft.columns.signal.std(-1) > 0).sum(-1)).all()
    assert set(draft.facts["form"].tolist()) == set(Form)


@pytest.mark.parametrize("kind", TaskKind)
@pytest.mark.parametrize(("count", "rows", "features"), [(1, 16, 1), (3, 16, 100), (5, 300, 2)])
def test_every_shape_gives_finite_standardised_scores(kind: TaskKind, count: int, rows: int, features: int) -> None:
    request = request_for(kind, count=count, rows=rows, features=features, columns=ColumnConfig())
    for seed in range(8):
        draft = make(PrototypesConfig(), seed=seed, request=request)
        assert draft.columns.values.shape == (count, features, rows) and draft.scores.shape == (count, 3, rows)
        assert draft.scores.isfinite().all() and draft.scores.mean(-1).abs().max() < 1e-4
        assert (draft.scores.std(-1) < 1.1).all() and draft.classes.shape == (count, rows)
        assert ((draft.facts["relevant"] >= 0) & (draft.facts["relevant"] <= features)).all()
        assert all(len(values) == count and values.isfinite().all() for values in draft.facts.values())


def test_equal_seeds_give_equal_tasks() -> None:
    request = request_for(TaskKind.CLASSIFICATION)
    first, second, other = (make(PrototypesConfig(), seed=seed, request=request) for seed in (3, 3, 4))
    assert torch.equal(first.scores, second.scores) and torch.equal(first.classes, second.classes)
    assert not torch.equal(first.scores, other.scores)


def test_most_classes_can_be_learned_from_rows_and_shuffled_ones_cannot() -> None:
    config = dataclasses.replace(PrototypesConfig(), cut_share=0.0)
    draft = make(config, request=request_for(TaskKind.CLASSIFICATION))
    x, y = draft.columns.values.transpose(1, 2).numpy(), draft.classes.numpy()
    gains = {"real": [], "shuffled": []}
    mixed = np.random.default_rng(0).permuted(y, axis=1)
    for task in range(len(y)):
        for name, target in (("real", y[task]), ("shuffled", mixed[task])):
            right = ExtraTreesClassifier(20, random_state=0).fit(x[task, :150], target[:150]).predict(x[task, 150:])
            common = np.bincount(target[:150]).argmax()
            gains[name].append(np.mean(right == target[150:]) - np.mean(common == target[150:]))
    assert np.mean(np.array(gains["real"]) > 0.08) > 0.6
    assert np.mean(np.array(gains["shuffled"]) > 0.08) < 0.1

"""5.I: each Bayes predictor is exact, against sums and integrals that share no formula with it."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from eval.bayes import BayesLinear, BayesProcess, BayesTable, BayesTree, bayes_predictor, log_marginal
from eval.scores import TAUS
from priors.dirichlet_table import DirichletTableConfig, cells_of, key_sets
from priors.exact import ExactConfig, ExactFamily, kind_of, sample_exact_group
from priors.gaussian_process import GaussianProcessConfig
from priors.linear_gaussian import LinearGaussianConfig
from priors.small_tree import SmallTreeConfig, cuts_of
from priors.task import Episode, Evidence, TaskKind
from tools.failure import BadInput, ExitCode

EVERY = list(ExactFamily)


def _evidence(family: ExactFamily, *, context: int = 12, queries: int = 5, seed: int = 0) -> Evidence:
    shape = {"rows": context + queries, "features": 3, "count": 1}
    task = sample_exact_group(ExactConfig(), family, seed=seed, **shape).task(0)
    return Episode(task=task, num_context=context).evidence()


def _answer(family: ExactFamily, evidence: Evidence) -> np.ndarray:
    """Everything that the predictor says, one row a query."""
    predictor = bayes_predictor(ExactConfig(), family)
    if evidence.kind is TaskKind.CLASSIFICATION:
        return predictor.classify(evidence)
    return predictor.forecast(evidence).quantiles


def _normal(y: np.ndarray, mean: np.ndarray, deviation: float) -> np.ndarray:
    return np.exp(-0.5 * ((y - mean) / deviation) ** 2) / (deviation * math.sqrt(2 * math.pi))


def test_linear_regression_is_the_integral_over_weight_offset_and_noise() -> None:
    """5.I: prior × likelihood on a fine grid of (w, b) for each noise, three context rows, one feature."""
    config = LinearGaussianConfig(weight=0.8, offset=0.6, noises=(0.3, 0.9))
    x, y = np.array([-0.7, 0.2, 1.1], np.float32), np.array([-0.4, 0.5, 0.9], np.float32)
    evidence = dataclasses.replace(
        _evidence(ExactFamily.LINEAR_GAUSSIAN),
        x_context=x[:, None],
        y_context=y,
        x_query=np.array([[0.5], [-2.0]], np.float32),
    )
    w, b = np.meshgrid(np.linspace(-5, 5, 801), np.linspace(-4, 4, 801))
    prior = _normal(w, 0, 0.8) * _normal(b, 0, 0.6)
    answers = np.array([0.3, -1.5])
    joint, total = np.zeros(2), 0.0
    for noise in config.noises:
        weight = prior * np.prod([_normal(t, b + w * s, noise) for s, t in zip(x.tolist(), y.tolist(), strict=True)], 0)
        total += weight.sum()
        joint += [(weight * _normal(a, b + w * q, noise)).sum() for a, q in zip(answers, (0.5, -2.0), strict=True)]
    found = BayesLinear(config=config).log_density(evidence, answers)
    assert np.allclose(found, np.log(joint / total), atol=1e-6)


def test_linear_regression_on_three_columns_is_the_weight_space_posterior() -> None:
    """5.I: Bishop 2006, 3.53, 3.54 and 3.58, with the prior precision of each weight and of the offset."""
    config = LinearGaussianConfig(weight=1.4, offset=0.6, noises=(0.3,))
    evidence = _evidence(ExactFamily.LINEAR_GAUSSIAN)
    rows, queries = (np.column_stack([x, np.ones(len(x))]) for x in (evidence.x_context, evidence.x_query))
    precision = np.diag([*(3 / 1.4**2,) * 3, 1 / 0.6**2]) + rows.T @ rows / 0.09
    mean = queries @ np.linalg.solve(precision, rows.T @ evidence.y_context / 0.09)
    variance = 0.09 + np.einsum("mi,ij,mj->m", queries, np.linalg.inv(precision), queries)
    found = BayesLinear(config=config).posterior(evidence)
    assert np.allclose(found.means[0], mean, atol=1e-6) and np.allclose(found.deviations[0] ** 2, variance, atol=1e-6)


def _log_joint(y: np.ndarray, covariance: np.ndarray) -> float:
    return float(-0.5 * (y @ np.linalg.inv(covariance) @ y + np.linalg.slogdet(2 * np.pi * covariance)[1]))


def test_gaussian_process_predictive_is_a_ratio_of_joint_densities() -> None:
    """5.I: p(y* | y) = Σ_grid p(y, y*) / Σ_grid p(y), each a determinant and an inverse of the whole matrix."""
    config = GaussianProcessConfig(amplitude=1.2, length_scales=(0.4, 1.1), noises=(0.2, 0.7))
    evidence = _evidence(ExactFamily.GAUSSIAN_PROCESS, context=6)
    answers = np.linspace(-2, 2, 5)
    found = BayesProcess(config=config).log_density(evidence, answers)
    for row, answer in enumerate(answers):
        x = np.vstack([evidence.x_context, evidence.x_query[row]]).astype(np.float64)
        y = np.append(evidence.y_context.astype(np.float64), answer)
        square = ((x[:, None] - x[None]) ** 2).sum(-1)
        whole, part = [], []
        for scale, noise in itertools.product(config.length_scales, config.noises):
            covariance = 1.44 * np.exp(-square / (2 * 3 * scale**2)) + noise**2 * np.eye(7)
            whole.append(_log_joint(y, covariance))
            part.append(_log_joint(y[:-1], covariance[:-1, :-1]))
        assert found[row] == pytest.approx(np.logaddexp.reduce(whole) - np.logaddexp.reduce(part), abs=1e-8)


def _urn(labels: list[int], *, classes: int, concentration: float) -> float:
    """Probability of one sequence of labels, draw by draw (Pólya's urn)."""
    counts, product = [concentration] * classes, 1.0
    for label in labels:
        product *= counts[label] / sum(counts)
        counts[label] += 1
    return product


def test_log_marginal_is_the_urns_product_in_any_order() -> None:
    labels = [0, 2, 2, 1, 2, 0, 0]
    expected = math.log(_urn(labels, classes=4, concentration=0.3))
    assert log_marginal(np.array([3, 1, 3, 0]), concentration=0.3) == pytest.approx(expected)


def test_lookup_tables_are_the_sum_over_keys_and_concentrations() -> None:
    """5.I: p(y, y*) / p(y) with every sequence's probability multiplied out urn by urn."""
    config, evidence = DirichletTableConfig(max_keys=3), _evidence(ExactFamily.DIRICHLET_TABLE, seed=2)
    classes, labels = evidence.num_classes, evidence.y_context.astype(int).tolist()

    def probability(x: np.ndarray, y: list[int]) -> float:
        total = 0.0
        for keys, prior in key_sets(config, features=3):
            cells = cells_of(x, keys, max_levels=config.max_levels)
            for alpha in config.concentrations:
                urns = [[y[i] for i in np.flatnonzero(cells == cell)] for cell in set(cells.tolist())]
                total += prior / 3 * math.prod(_urn(urn, classes=classes, concentration=alpha) for urn in urns)
        return total

    found = BayesTable(config=config).classify(evidence)
    for row, query in enumerate(evidence.x_query):
        rows = np.vstack([evidence.x_context, query])
        joint = [probability(rows, [*labels, answer]) for answer in range(classes)]
        assert np.allclose(found[row], np.array(joint) / probability(evidence.x_context, labels), atol=1e-12)


def test_small_trees_are_the_sum_over_every_tree_written_out() -> None:
    """5.I: all 1 + S·(1 + S)² trees one by one, each row sent down the tree, each leaf an urn."""
    config = SmallTreeConfig(root_share=0.9, child_share=0.6, concentration=0.4)
    evidence = _evidence(ExactFamily.SMALL_TREE, seed=1)
    classes, labels = evidence.num_classes, evidence.y_context.astype(int).tolist()
    cuts = [tuple(cut) for cut in cuts_of(evidence.level_counts).tolist()]
    children = [(None, 0.4), *((cut, 0.6 / len(cuts)) for cut in cuts)]
    trees = [(None, None, None, 0.1)]
    for root, (left, p), (right, q) in itertools.product(cuts, children, children):
        trees.append((root, left, right, 0.9 / len(cuts) * p * q))
    assert len(trees) == 1 + len(cuts) * (1 + len(cuts)) ** 2 and sum(t[3] for t in trees) == pytest.approx(1)

    def leaf(tree: tuple, row: np.ndarray) -> str:
        path = ""
        for cut in (tree[0], None):
            cut = cut if not path else (tree[2] if path == "1" else tree[1])
            path += "" if cut is None else str(int(row[cut[0]] >= cut[1]))
        return path

    found, rows = BayesTree(config=config).classify(evidence), [*evidence.x_context, *evidence.x_query[:2]]
    joint, total = np.zeros((2, classes)), 0.0
    for tree in trees:
        places = [leaf(tree, row) for row in rows]
        urns = {place: [y for y, at in zip(labels, places, strict=False) if at == place] for place in set(places)}
        weight = tree[3] * math.prod(_urn(urn, classes=classes, concentration=0.4) for urn in urns.values())
        total += weight
        for query, place in enumerate(places[-2:]):
            counts = np.bincount(urns[place], minlength=classes) + 0.4
            joint[query] += weight * counts / counts.sum()
    assert np.allclose(found[:2], joint / total, atol=1e-12)


@pytest.mark.parametrize("family", [ExactFamily.DIRICHLET_TABLE, ExactFamily.SMALL_TREE])
def test_tasks_that_look_alike_have_the_predicted_share_of_each_answer(family: ExactFamily) -> None:
    """5.I: rejection sampling through the sampler itself: of 60,000 drawn tasks, those with equal evidence."""
    config = ExactConfig(
        dirichlet_table=DirichletTableConfig(max_levels=2, max_classes=2),
        small_tree=SmallTreeConfig(max_levels=2, max_classes=2),
    )
    group = sample_exact_group(config, family, seed=5, rows=4, features=2, count=60_000)
    keys = np.concatenate([group.x.reshape(60_000, -1), group.y[:, :3]], axis=1).astype(np.int64)
    codes = keys @ 2 ** np.arange(keys.shape[1])
    seen, checked = np.bincount(codes, minlength=2048), 0
    for code in np.argsort(-seen)[:60]:
        alike = np.flatnonzero(codes == code)
        evidence = Episode(task=group.task(int(alike[0])), num_context=3).evidence()
        p = bayes_predictor(config, family).classify(evidence)[0, 1]
        error = math.sqrt(p * (1 - p) / len(alike))
        assert abs(group.y[alike, 3].mean() - p) < 4 * error
        checked += len(alike)
    assert checked > 2000


@pytest.mark.parametrize("family", EVERY)
def test_queries_are_answered_one_by_one_and_the_order_of_rows_means_nothing(family: ExactFamily) -> None:
    evidence = _evidence(family)
    order, context = np.array([3, 0, 4, 1, 2]), np.random.default_rng(0).permutation(12)
    whole = _answer(family, evidence)
    assert np.allclose(_answer(family, dataclasses.replace(evidence, x_query=evidence.x_query[order])), whole[order])
    assert np.allclose(_answer(family, dataclasses.replace(evidence, x_query=evidence.x_query[2:3])), whole[2:3])
    changes = {"x_context": evidence.x_context[context], "y_context": evidence.y_context[context]}
    assert np.allclose(_answer(family, dataclasses.replace(evidence, **changes)), whole)


@pytest.mark.parametrize("family", EVERY)
def test_forecasts_and_densities_are_one_distribution(family: ExactFamily) -> None:
    evidence, predictor = _evidence(family), bayes_predictor(ExactConfig(), family)
    if kind_of(family) is TaskKind.CLASSIFICATION:
        p = predictor.classify(evidence)
        assert np.allclose(p.sum(1), 1) and p.shape == (5, evidence.num_classes) and (p > 0).all()
        answers = np.arange(5) % evidence.num_classes
        assert np.allclose(predictor.log_density(evidence, answers.astype(np.float32)), np.log(p[range(5), answers]))
        return
    forecast = predictor.forecast(evidence)
    assert forecast.quantiles.shape == (5, len(TAUS))
    grid = np.linspace(forecast.quantiles[:, 0], forecast.quantiles[:, -1], 4001)
    density = np.exp([predictor.log_density(evidence, y) for y in grid])
    assert np.allclose(np.trapezoid(density, grid, axis=0), 0.98, atol=1e-5)


def test_evidence_that_the_family_cannot_make_is_refused() -> None:
    table, line = _evidence(ExactFamily.DIRICHLET_TABLE), _evidence(ExactFamily.LINEAR_GAUSSIAN)
    of_table = bayes_predictor(ExactConfig(), ExactFamily.DIRICHLET_TABLE)
    of_line = bayes_predictor(ExactConfig(), ExactFamily.LINEAR_GAUSSIAN)
    holed = line.x_context.copy()
    holed[0, 0] = np.nan
    cases = (
        (lambda: of_table.classify(line), "regression"),
        (lambda: of_table.forecast(table), "classification"),
        (lambda: of_line.forecast(table), "classification"),
        (lambda: of_line.classify(line), "regression"),
        (lambda: of_line.forecast(dataclasses.replace(line, x_context=holed)), "missing"),
        (lambda: of_table.classify(dataclasses.replace(table, x_query=table.x_query + 9)), "code"),
        (lambda: of_table.classify(dataclasses.replace(table, level_counts=table.level_counts + 9)), "level_counts"),
    )
    for call, word in cases:
        with pytest.raises(BadInput, match=word) as refusal:
            call()
        assert refusal.value.code is ExitCode.CONFIG_MISMATCH

"""Tests of eval/black_box.py: legal predictors pass, and every audit fails on a predictor that it is there to catch."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from eval.black_box import Finding, Predict, Verdict, audit_black_box, black_box_tables
from eval.mutants import mutated
from eval.small_network import rerandomised_network
from eval.subject import Subject
from model.estimator import ICLClassifier, ICLRegressor
from model.icl_transformer import AttentionPath
from model.network import Network
from priors.task import TaskKind
from tools.failure import BadInput

_K = 3
_JUDGED = ["context_labels", "own_row", "query_set", "query_permutation", "query_batching"]
_SIZES = ["duplicate_row", "class_permutation", "feature_permutation", "last_digit"]


def _kernel(x_context: np.ndarray, y_context: np.ndarray, x_query: np.ndarray) -> np.ndarray:
    """Nadaraya–Watson: legal, and blind to the order of rows, classes and features."""
    weights = 1 / (0.1 + ((x_query[:, None] - x_context[None]) ** 2).sum(-1))
    return weights @ np.eye(_K)[y_context] / weights.sum(1, keepdims=True)


def _scaled_with_queries(x_context: np.ndarray, y_context: np.ndarray, x_query: np.ndarray) -> np.ndarray:
    both = np.concatenate([x_context, x_query])
    mean, deviation = both.mean(0), both.std(0)
    return _kernel((x_context - mean) / deviation, y_context, (x_query - mean) / deviation)


def _reads_queries(x_context: np.ndarray, y_context: np.ndarray, x_query: np.ndarray) -> np.ndarray:
    """Each prediction takes a little of the predictions of similar queries."""
    alone = _kernel(x_context, y_context, x_query)
    near = np.exp(-((x_query[:, None] - x_query[None]) ** 2).sum(-1))
    return 0.99 * alone + 0.01 * near @ alone / near.sum(1, keepdims=True)


def _sees_positions(x_context: np.ndarray, y_context: np.ndarray, x_query: np.ndarray) -> np.ndarray:
    """A wave over the places of inner queries: the first and the last, which `query_set` watches, are left alone."""
    found = _kernel(x_context, y_context, x_query)
    if len(x_query) > 4:
        found[1:-1, 0] += 1e-3 * np.sin(np.arange(1, len(x_query) - 1))
    return found


def _squeezes_one(x_context: np.ndarray, y_context: np.ndarray, x_query: np.ndarray) -> np.ndarray:
    """A batch of one is scaled by itself: how a lost dimension shows."""
    return _kernel(x_context, y_context, x_query * (0.9 if len(x_query) == 1 else 1.0))


def _own_row_ignored(x_context: np.ndarray, y_context: np.ndarray, x_query: np.ndarray) -> np.ndarray:
    rows = np.linspace(0, 1, len(y_context))
    return np.tile(rows @ np.eye(_K)[y_context] / rows.sum(), (len(x_query), 1))


def _labels_ignored(x_context: np.ndarray, y_context: np.ndarray, x_query: np.ndarray) -> np.ndarray:
    return _kernel(x_context, np.arange(len(x_context)) % _K, x_query)


class _Restless:
    """No two calls agree."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x_context: np.ndarray, y_context: np.ndarray, x_query: np.ndarray) -> np.ndarray:
        """The kernel's prediction and a number that grows."""
        self.calls += 1
        return _kernel(x_context, y_context, x_query) + 1e-3 * self.calls


def _found(predict: Predict, *, num_classes: int = _K) -> dict[str, Finding]:
    return {finding.name: finding for finding in audit_black_box(predict, num_classes=num_classes)}


def _failed(predict: Predict, *, num_classes: int = _K) -> list[str]:
    return [name for name, one in _found(predict, num_classes=num_classes).items() if one.verdict is Verdict.FAIL]


def _forest(x_context: np.ndarray, y_context: np.ndarray, x_query: np.ndarray) -> np.ndarray:
    return RandomForestClassifier(10, random_state=0).fit(x_context, y_context).predict_proba(x_query)


def _classifier(network: Network, *, cache: bool = True) -> Predict:
    return lambda x, y, queries: ICLClassifier(network, cache=cache).fit(x, y).predict_proba(queries)


def test_a_legal_predictor_passes_and_every_size_of_a_symmetric_one_is_rounding() -> None:
    found = _found(_kernel)
    assert [name for name, one in found.items() if one.verdict is Verdict.PASS] == _JUDGED
    assert [name for name, one in found.items() if one.verdict is Verdict.SIZE] == _SIZES
    for name in ("class_permutation", "feature_permutation"):
        assert found[name].figures["largest"] < 1e-12
    assert found["duplicate_row"].figures["largest"] > 1e-3


@pytest.mark.parametrize(
    ("predict", "failed"),
    [
        (_scaled_with_queries, ["query_set", "query_batching"]),
        (_reads_queries, ["query_set", "query_batching"]),
        (_sees_positions, ["query_permutation", "query_batching"]),
        (_squeezes_one, ["query_batching"]),
        (_own_row_ignored, ["own_row", "query_set", "query_permutation", "query_batching"]),
        (_labels_ignored, ["context_labels"]),
        (_Restless(), _JUDGED),
    ],
)
def test_every_audit_fails_where_it_must(predict: Predict, failed: list[str]) -> None:
    """5.C: permutation alone sees neither query→query reading nor statistics over context and queries."""
    assert _failed(predict) == failed


def _hashes_rows(x_context: np.ndarray, y_context: np.ndarray, x_query: np.ndarray) -> np.ndarray:
    return _kernel(x_context, y_context, x_query + 1e-2 * np.sin(1e9 * x_query))


def test_a_predictor_that_hashes_rows_is_judged_all_the_same() -> None:
    found = _found(_hashes_rows)
    assert [one.verdict for one in found.values()][:5] == [Verdict.PASS] * 5
    assert found["last_digit"].figures["largest"] > 1e-3 > found["query_set"].figures["tolerance"]
    assert _found(_kernel)["last_digit"].figures["largest"] < 1e-6


def test_other_peoples_estimators_run_through_the_same_code() -> None:
    found = _found(_forest)
    assert [one.verdict for one in found.values()][:5] == [Verdict.PASS] * 5
    assert found["feature_permutation"].figures["largest"] > 0.05  # a forest draws columns by number


def test_our_classifier_passes() -> None:
    found = _found(_classifier(rerandomised_network(TaskKind.CLASSIFICATION)))
    assert [one.verdict for one in found.values()] == [Verdict.PASS] * 5 + [Verdict.SIZE] * 4
    assert found["class_permutation"].figures["largest"] > found["query_set"].figures["tolerance"]


def test_our_regressor_passes_and_has_no_classes_to_permute() -> None:
    network = rerandomised_network(TaskKind.REGRESSION)
    found = _found(lambda x, y, queries: ICLRegressor(network).fit(x, y).predict(queries), num_classes=0)
    assert list(found) == [*_JUDGED, "duplicate_row", "feature_permutation", "last_digit"]
    assert [found[name].verdict for name in _JUDGED] == [Verdict.PASS] * 5


@pytest.mark.parametrize("name", ["query_reads_query", "all_rows_are_keys"])
def test_a_leak_built_into_our_network_is_seen_from_outside(name: str) -> None:
    subject = Subject(network=rerandomised_network(TaskKind.CLASSIFICATION), path=AttentionPath.FAST)
    subject = mutated(name, subject)
    subject.network.icl.path = subject.path
    assert _failed(_classifier(subject.network, cache=False)) == ["query_set", "query_batching"]


def test_tables_can_be_learned_and_hold_every_class() -> None:
    for table in black_box_tables(num_classes=4):
        assert table.num_classes == 4 == len(np.unique(table.y_context))
        linear = LogisticRegression().fit(table.x_context, table.y_context)
        assert linear.score(table.x_context, table.y_context) > 0.5
    assert black_box_tables(num_classes=0)[0].num_classes == 0


@pytest.mark.parametrize(
    ("predict", "said"),
    [
        (lambda x, y, queries: np.zeros((len(queries), 2)), "predict gave shape (7, 2): it must give (7, 3)"),
        (lambda x, y, queries: np.full((len(queries), 3), np.nan), "predict gave 21 numbers that are not finite"),
    ],
)
def test_what_cannot_be_judged_is_refused(predict: Predict, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        audit_black_box(predict, num_classes=3)
    assert said in str(caught.value)

"""Design matrices: what is fitted on the context, and what becomes of missing, infinite and unknown values."""

import numpy as np

from eval import design_matrix
from priors.task import ColumnKind, Evidence, TaskKind


def _evidence(context: list[list[float]], query: list[list[float]], *, kinds: list[ColumnKind]) -> Evidence:
    return Evidence(
        x_context=np.array(context, np.float32),
        y_context=np.zeros(len(context), np.float32),
        x_query=np.array(query, np.float32),
        column_kinds=np.array(kinds, np.int8),
        level_counts=np.zeros(len(kinds), np.int32),
        kind=TaskKind.REGRESSION,
        num_classes=0,
    )


def test_numbers_are_scaled_by_the_context_alone() -> None:
    """6.12: the query's own statistics play no part."""
    query = [[5.0], [1e9], [np.inf]]
    design = design_matrix.standardised(_evidence([[1.0], [3.0]], query, kinds=[ColumnKind.NUMBER]))
    assert design.context.tolist() == [[-1.0], [1.0]] and design.query[[0, 2], 0].tolist() == [3.0, 1.0]


def test_missing_becomes_the_median_and_infinite_an_extreme() -> None:
    context = [[0.0], [1.0], [5.0], [np.nan], [np.inf]]
    design = design_matrix.standardised(_evidence(context, [[np.nan], [-np.inf]], kinds=[ColumnKind.ORDINAL]))
    filled = np.array([0.0, 1.0, 5.0, 3.0, 5.0])
    assert np.allclose(design.context[:, 0], (filled - filled.mean()) / filled.std())
    assert np.allclose(design.query[:, 0], (np.array([3.0, 0.0]) - filled.mean()) / filled.std())


def test_a_category_gets_a_column_for_each_level_and_for_missing() -> None:
    design = design_matrix.standardised(_evidence([[0], [1], [1]], [[1], [2], [np.nan]], kinds=[ColumnKind.CATEGORY]))
    assert design.context.tolist() == [[0, 1, 0], [1, 0, 0], [1, 0, 0]]
    assert design.query.tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 1]]


def test_only_the_most_frequent_levels_get_columns() -> None:
    codes = [[float(code)] for code in range(50)] + [[49.0]] * 3
    design = design_matrix.standardised(_evidence(codes, [[49.0], [48.0]], kinds=[ColumnKind.CATEGORY]))
    assert design.context.shape[1] == design_matrix.MAX_LEVELS + 1
    assert design.query.sum(axis=1).tolist() == [1, 0]


def test_trees_get_numbers_with_gaps_and_one_code_for_missing_and_unknown_levels() -> None:
    kinds = [ColumnKind.CATEGORY, ColumnKind.NUMBER, ColumnKind.ABSENT]
    query = [[4, -np.inf, 0], [np.nan, np.nan, 0], [3, 1, 0]]
    design = design_matrix.ordinal(_evidence([[3, np.nan, 0], [1, np.inf, 0], [np.nan, 2, 0]], query, kinds=kinds))
    assert np.array_equal(design.context, [[3, np.nan], [1, 2], [-1, 2]], equal_nan=True)
    assert np.array_equal(design.query, [[-1, 2], [-1, np.nan], [3, 1]], equal_nan=True)


def test_a_table_of_padding_alone_has_one_empty_column() -> None:
    evidence = _evidence([[1.0], [2.0]], [[3.0]], kinds=[ColumnKind.ABSENT])
    for design in (design_matrix.ordinal(evidence), design_matrix.standardised(evidence)):
        assert design.context.tolist() == [[0.0], [0.0]] and design.query.tolist() == [[0.0]]

"""Normalisation by the context alone, and what one cell says."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from model.attention import Norm
from model.cell_embedding import (
    CATEGORY,
    NUM_FEATURES,
    NUMBER,
    ORDINAL,
    CellEmbedding,
    CellFeatures,
    context_statistics,
)
from model.network import CellConfig, Network, NetworkConfig
from model.specimens import distance, redraw
from tools.failure import BadInput, ExitCode

Z, RANK, NAN, PLUS, MINUS, IS_CATEGORY, IS_ORDINAL, UNSEEN, SHARE, SIGNATURE = 0, 1, 18, 19, 20, 21, 22, 23, 24, 25
HUGE = 3.4e38


def _features(
    context: list[float], cells: list[float], *, kind: int = NUMBER, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Features [len(cells), F] of one column."""
    x_context = torch.tensor(context, dtype=dtype).view(1, -1, 1)
    x = torch.tensor(cells, dtype=dtype).view(1, -1, 1)
    statistics = context_statistics(x_context, torch.ones(1, len(context), dtype=torch.bool))
    features = CellFeatures()(x, torch.tensor([[kind]]), statistics)
    assert features.shape[-1] == NUM_FEATURES
    assert features.isfinite().all(), features
    return features[0, :, 0]


def test_a_number_is_its_soft_clipped_z_score_and_its_mid_rank() -> None:
    """5.11: scalar → cell, measured against the context rows of its own column."""
    context = [1.0, 2.0, 2.0, 5.0]
    found = _features(context, [2.0, 0.0, 9.0, 3.0], dtype=torch.float64)
    z = (np.array([2.0, 0.0, 9.0, 3.0]) - np.mean(context)) / np.std(context)
    assert np.allclose(found[:, Z], 5 * np.tanh(z / 5), atol=1e-12)
    assert found[:, RANK].tolist() == [0.0, -1.0, 1.0, 0.5]


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_units_do_not_matter(scale: float) -> None:
    """Statistics neither overflow nor vanish in fp32."""
    context, cells = [1.0, -2.0, 3.5], [0.5, 7.0]
    scaled = _features([scale * value for value in context], [scale * value for value in cells])
    assert distance(scaled, _features(context, cells)) < 2e-4


def test_an_offset_does_not_matter() -> None:
    """Years near 2000 look like years near 0."""
    assert distance(_features([2001.0, 2003.0, 2010.0], [2004.0]), _features([1.0, 3.0, 10.0], [4.0])) < 5e-3


@pytest.mark.parametrize(
    "context",
    [
        [5.0] * 4,
        [0.0],
        [math.nan] * 3,
        [math.inf, -math.inf],
        [HUGE] * 7,
        [-HUGE] * 7,
        [HUGE, -HUGE],
        [1e-45, 0.0],
        [1.2e-38, 1.3e-38],
    ],
)
def test_odd_columns_give_finite_features(context: list[float]) -> None:
    """Constant, empty, infinite, huge and denormal columns; `_features` asserts finiteness."""
    cells = [0.0, 5.0, -5.0, 1e30, HUGE, -HUGE, 1e-45, math.nan, math.inf, -math.inf]
    for kind in (NUMBER, ORDINAL, CATEGORY):
        _features(context, cells, kind=kind)


def test_a_constant_column_still_tells_above_from_below() -> None:
    """Its z-score is 0 everywhere, its rank is not."""
    found = _features([5.0] * 4, [4.0, 5.0, 6.0])
    assert found[:, Z].tolist() == [0.0, 0.0, 0.0]
    assert found[:, RANK].tolist() == [-1.0, 0.0, 1.0]


def test_rounding_noise_is_no_spread() -> None:
    """A column that varies by the last bit of fp32 is constant."""
    assert _features([1e6, 1e6 + 0.0625], [1e6, 1e6 + 0.0625])[:, Z].tolist() == [0.0, 0.0]
    assert _features([1e6, 1e6 + 64], [1e6])[0, Z] < -0.5


def test_one_finite_value_is_a_constant_column() -> None:
    """NaN and infinities take no part in statistics."""
    found = _features([math.nan, 3.0, math.inf, -math.inf], [3.0, 2.0])
    assert found[:, Z].tolist() == [0.0, 0.0]
    assert found[:, RANK].tolist() == [0.0, -1.0]


def test_a_column_that_the_context_lacks_says_nothing_but_that_the_query_has_it() -> None:
    """Neither a z-score nor a rank can be measured against nothing."""
    found = _features([math.nan, math.nan], [1.0, -7.0, math.nan])
    assert found[:, Z].tolist() == [0.0, 0.0, 0.0]
    assert found[:, RANK].tolist() == [0.0, 0.0, 0.0]
    assert found[:, NAN].tolist() == [0.0, 0.0, 1.0]


def test_missing_and_infinite_values_are_flagged_apart() -> None:
    """NaN, +inf and -inf are legal and different."""
    found = _features([1.0, 2.0], [math.nan, math.inf, -math.inf, 1.5])
    assert found[:, [NAN, PLUS, MINUS]].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert (found[:3, Z:NAN] == 0).all()


def test_a_category_is_never_a_z_scored_code() -> None:
    """Its signature, its share of the context and whether the context has it: no number features at all."""
    found = _features([0.0, 0.0, 2.0, math.nan], [0.0, 2.0, 7.0], kind=CATEGORY)
    assert (found[:, Z:NAN] == 0).all()
    assert found[:, SHARE].tolist() == pytest.approx([2 / 3, 1 / 3, 0.0])
    assert found[:, UNSEEN].tolist() == [0.0, 0.0, 1.0]
    assert distance(found[0, SIGNATURE:], found[1, SIGNATURE:]) > 0.1


def test_any_code_has_a_signature() -> None:
    """Negative, fractional, beyond 255 and huge codes; equal codes modulo 256 share one."""
    cells = [-1.0, -1e-9, 255.0, 256.0, 0.0, 511.0, 1e30, -1e30]
    signature = _features([1.0], cells, kind=CATEGORY)[:, SIGNATURE:]
    assert torch.equal(signature[0], signature[1])
    assert torch.equal(signature[0], signature[2])
    assert torch.equal(signature[5], signature[2])
    assert torch.equal(signature[3], signature[4])


def test_an_ordinal_is_a_number_with_a_flag() -> None:
    """Its order means something, so it keeps z-score and rank."""
    number, ordinal = _features([0.0, 1.0, 2.0], [1.5]), _features([0.0, 1.0, 2.0], [1.5], kind=ORDINAL)
    assert ordinal[0, IS_ORDINAL] == 1
    ordinal[0, IS_ORDINAL] = 0
    assert torch.equal(number, ordinal)


def test_padded_context_rows_take_no_part() -> None:
    """5.7: statistics of a padded table equal those of the table alone."""
    x = torch.tensor([1.0, 4.0, 9.0]).view(1, 3, 1)
    padded = torch.cat([x, torch.tensor([0.0, 77.0]).view(1, 2, 1)], dim=1)
    mask = torch.tensor([[True, True, True, False, False]])
    alone, together = context_statistics(x, mask[:, :3]), context_statistics(padded, mask)
    kinds = torch.tensor([[NUMBER]])
    assert torch.equal(CellFeatures()(x, kinds, alone), CellFeatures()(x, kinds, together))
    assert int(together.num_rows) == int(alone.num_rows) == 3


def test_every_machine_has_the_same_signatures_and_checkpoints_hold_them() -> None:
    """They are drawn from a fixed seed, never from the global generator, and saved with the weights."""
    torch.manual_seed(1)
    first = CellFeatures().state_dict()["signatures"]
    torch.manual_seed(2)
    assert torch.equal(first, CellFeatures().state_dict()["signatures"])
    assert float(first[0, 0]) == pytest.approx(-1.1258398, abs=1e-5)


def test_neighbours_go_around_each_table_of_its_own_width() -> None:
    """5.7: a table with padded columns embeds as it does alone."""
    embedding = CellEmbedding(4, norm=Norm.LAYER).double()
    redraw(embedding)
    features = torch.randn(2, 3, 6, NUM_FEATURES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    padded = embedding(features, torch.tensor([4, 6]))
    assert distance(padded[:1, :, :4], embedding(features[:1, :, :4], None)) < 1e-14
    assert distance(padded[1:], embedding(features[1:], None)) < 1e-14
    assert embedding(features[:1], torch.tensor([0])).isfinite().all()


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [((0, 1, 3), [1, 2, 5]), ((0,), [2]), ((2, 0), [0, 2]), ((0, 1, 2), [0, 1, 2]), ((0, 7), [1, 2])],
)
def test_a_cell_reads_the_columns_of_its_group(offsets: tuple[int, ...], expected: list[int]) -> None:
    """Changing column 2 of 6 moves exactly the cells whose group holds it, around the table; (0,) is no group."""
    embedding = CellEmbedding(4, norm=Norm.LAYER, offsets=offsets).double()
    redraw(embedding)
    features = torch.randn(1, 1, 6, NUM_FEATURES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    changed = features.clone()
    changed[:, :, 2] += 1
    for num_columns in (None, torch.tensor([6])):
        moved = embedding(features, num_columns) - embedding(changed, num_columns)
        assert (moved.abs().amax((0, 1, 3)) > 1e-9).nonzero()[:, 0].tolist() == expected


def test_a_group_is_that_of_the_default_configuration() -> None:
    """The layer and the configuration state it once."""
    assert CellEmbedding(4, norm=Norm.LAYER).offsets == CellConfig().feature_offsets == (0, 1, 3)


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ((), r"cell.feature_offsets \(\) lacks 0: add 0"),
        ((1, 3), r"\(1, 3\) lacks 0"),
        ((0, -1), r"\(0, -1\) has a negative offset: count to the right"),
        ((0, 1, 1), r"\(0, 1, 1\) names an offset twice: name each once"),
    ],
)
def test_offsets_that_mean_nothing_are_refused(offsets: tuple[int, ...], message: str) -> None:
    """One line that names the field, the value and the mend; a ValueError, through the whole network too."""
    with pytest.raises(BadInput, match=message) as caught:
        Network(NetworkConfig(cell=CellConfig(feature_offsets=offsets)))
    assert caught.value.code is ExitCode.BAD_FLAG and isinstance(caught.value, ValueError)

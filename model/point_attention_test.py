"""Attention between few points and many rows equals plain attention, whether its projections are folded or not."""

import pytest
import torch
from torch import Tensor

from model.attention import Attention
from model.point_attention import Gathering, Scattering
from model.specimens import distance, redraw
from tools.failure import BadInput

WIDTH, ROWS = 8, 7
_FOLDED, _UNFOLDED = (2, 3), (4, 6)  # heads, points: 2·3 < 8 + 3, but 4·6 ≥ 8 + 6
_SIZES = pytest.mark.parametrize(("num_heads", "num_points"), [(1, 3), _FOLDED, _UNFOLDED])


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _pair(kind: type[Attention], *, num_heads: int, num_points: int) -> tuple[Attention, Attention]:
    ours = kind(WIDTH, num_heads=num_heads, num_points=num_points).double()
    redraw(ours)
    plain = Attention(WIDTH, num_heads=num_heads).double()
    plain.load_state_dict(ours.state_dict())  # the parameters have the same names and shapes
    return ours, plain


def _gradients(module: Attention) -> Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in module.parameters()])


def test_projections_are_folded_where_that_is_cheaper() -> None:
    for (num_heads, num_points), folds in ((_FOLDED, True), (_UNFOLDED, False)):
        assert Gathering(WIDTH, num_heads=num_heads, num_points=num_points).folds is folds
        assert Scattering(WIDTH, num_heads=num_heads, num_points=num_points).folds is folds


@_SIZES
@pytest.mark.parametrize("hidden", [False, True])
def test_points_that_read_rows_are_plain_attention(num_heads: int, num_points: int, hidden: bool) -> None:
    """5.6: also where rows are hidden; points of a table whose rows all are read nothing."""
    ours, plain = _pair(Gathering, num_heads=num_heads, num_points=num_points)
    points, source = _random(num_points, WIDTH, seed=1), _random(2, 5, ROWS, WIDTH, seed=2)
    bias = None
    if hidden:
        bias = torch.zeros(2, 1, 1, 1, ROWS)
        bias[0, ..., 4:] = -torch.inf
        bias[1] = -torch.inf
    found, expected = ours(points, source, bias=bias), plain(points.expand(2, 5, -1, -1), source, bias=bias)
    assert distance(found, expected) < 1e-13
    assert (found[1] == 0).all() == hidden
    for module, read in ((ours, found), (plain, expected)):
        read.sin().sum().backward()
        assert _gradients(module).isfinite().all()
    assert distance(_gradients(ours), _gradients(plain)) < 1e-11
    assert float(_gradients(plain).abs().max()) > 0.1


@_SIZES
def test_rows_that_read_points_are_plain_attention(num_heads: int, num_points: int) -> None:
    ours, plain = _pair(Scattering, num_heads=num_heads, num_points=num_points)
    x, points = _random(2, 5, ROWS, WIDTH, seed=1), _random(2, 5, num_points, WIDTH, seed=2)
    found, expected = ours(x, points), plain(x, points)
    assert distance(found, expected) < 1e-13
    assert torch.equal(ours.read(x[:, :, 2:], ours.remember(points)), found[:, :, 2:])
    for module, read in ((ours, found), (plain, expected)):
        read.sin().sum().backward()
    assert distance(_gradients(ours), _gradients(plain)) < 1e-11
    assert float(_gradients(plain).abs().max()) > 0.1


@_SIZES
def test_a_bias_that_would_be_read_wrongly_is_refused(num_heads: int, num_points: int) -> None:
    points, rows = _random(num_points, WIDTH).float(), _random(2, ROWS, WIDTH).float()
    gathering = Gathering(WIDTH, num_heads=num_heads, num_points=num_points)
    for shape in ((2, num_heads + 1, 1, ROWS), (2, 1, num_points, ROWS), (1, ROWS)):
        with pytest.raises(BadInput, match="it must be"):
            gathering(points, rows, bias=torch.zeros(shape))
    scattering = Scattering(WIDTH, num_heads=num_heads, num_points=num_points)
    with pytest.raises(TypeError, match="bias"):
        scattering(rows, points.expand(2, -1, -1), bias=torch.zeros(2, 1, 1, num_points))


@pytest.mark.parametrize("kind", [Gathering, Scattering])
def test_a_fresh_one_reads_nothing(kind: type[Attention]) -> None:
    """1.3: residual branches start at zero."""
    module = kind(WIDTH, num_heads=2, num_points=3)
    points, rows = _random(3, WIDTH).float(), _random(2, 5, ROWS, WIDTH).float()
    read = module(points, rows) if kind is Gathering else module(rows, points.expand(2, 5, -1, -1))
    assert (read == 0).all()

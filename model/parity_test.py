"""With weights copied from `tabpfn==9.2.0`, our modules give its numbers: retrieval, QASSMax, ICL attention, bars.

Their modules start with zeros in places (output projections, the last layer of the scaling's modulation), and zeros
agree with anything: every tensor is drawn anew before it is copied, and outputs are checked not to be zeros.
The target has `peers = True`: `tools/bazelw test //model:parity_test`.
"""

import copy

import numpy as np
import pytest
import torch
from tabpfn.architectures import tabpfn_v3
from tabpfn.architectures.shared.bar_distribution import FullSupportBarDistribution
from torch import Tensor, nn

from model.bar_distribution import BarDistribution
from model.bucket_borders import BorderRule, BucketConfig, bucket_borders
from model.class_distribution import LogForm, logarithm
from model.classification_head import (
    ClassificationHeadConfig,
    LengthScaling,
    RetrievalClassificationHead,
    log_probabilities,
)
from model.icl_transformer import AttentionPath, ContextView, ICLAttention, ICLConfig, Visibility
from model.length_scaling import QASSMax

_B, _N, _M, _WIDTH, _HEADS, _HEAD_WIDTH, _K = 2, 37, 11, 48, 4, 12, 5
_TOLERANCE = 1e-5


@pytest.fixture
def generator() -> torch.Generator:
    """Of everything that is drawn."""
    return torch.Generator().manual_seed(3)


def _without_zeros(module: nn.Module, generator: torch.Generator) -> nn.Module:
    """The module with every tensor drawn anew, those that start at zero too."""
    with torch.no_grad():
        for value in module.parameters():
            value.copy_(torch.randn(value.shape, generator=generator) * value.shape[-1] ** -0.5)
    assert all(value.abs().min() > 0 for value in module.parameters())
    return module.eval()


def _draw(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator)


def _assert_equal(ours: Tensor, theirs: Tensor) -> None:
    """To 1e-5, relative to the size of the numbers, which must not be zeros."""
    ours, theirs = ours.detach(), theirs.detach()
    size = float(theirs.abs().max())
    assert size > 0.01
    assert float((ours - theirs).abs().max()) < _TOLERANCE * max(1.0, size)


def _copy(target: nn.Module, **tensors: Tensor) -> None:
    """Loads tensors by name; `__` stands for the dot. All of the target's must be there."""
    target.load_state_dict({name.replace("__", "."): value for name, value in tensors.items()})


def _scaling_weights(theirs: nn.Module, prefix: str = "") -> dict[str, Tensor]:
    weights = theirs.state_dict()
    names = {"base_mlp": "base", "query_mlp": "modulation"}
    return {prefix + names[key.split(".")[0]] + key[key.index(".") :]: value for key, value in weights.items()}


@pytest.mark.parametrize("rows", [1, 2, 500, 100_000])
def test_length_scaling_is_theirs(generator: torch.Generator, rows: int) -> None:
    theirs = _without_zeros(tabpfn_v3.SoftmaxScalingMLP(_HEADS, _HEAD_WIDTH, n_hidden=64), generator)
    ours = QASSMax(num_heads=_HEADS, head_width=_HEAD_WIDTH)
    ours.load_state_dict(_scaling_weights(theirs))
    query = _draw(generator, _B, _M, _HEADS, _HEAD_WIDTH)
    scaled = ours(query.transpose(1, 2), torch.tensor([rows])).transpose(1, 2)
    _assert_equal(scaled, theirs(query, rows))
    assert (scaled - query).abs().max() > 0.1


def _attention_pair(generator: torch.Generator) -> tuple[ICLAttention, nn.Module]:
    theirs = tabpfn_v3.ICLAttention(
        embedding_size=_WIDTH,
        num_heads=_HEADS,
        head_dim=_HEAD_WIDTH,
        softmax_scaling_layer=tabpfn_v3.SoftmaxScalingMLP(_HEADS, _HEAD_WIDTH),
        num_kv_heads_test=1,
    )
    _without_zeros(theirs, generator)
    ours = ICLAttention(ICLConfig(width=_WIDTH, num_heads=_HEADS, num_kv_heads_query=1, length_scaling=True))
    weights = theirs.state_dict()
    _copy(
        ours,
        query__weight=weights["q_projection.weight"],
        key_value__weight=torch.cat([weights["k_projection.weight"], weights["v_projection.weight"]]),
        output__weight=weights["out_projection.weight"],
        **_scaling_weights(theirs.softmax_scaling_layer, "scaling."),
    )
    return ours, theirs


def _view(path: AttentionPath) -> ContextView:
    bias = None
    if path is AttentionPath.REFERENCE:
        bias = Visibility()(torch.ones(_B, _N, dtype=torch.bool), _M)
    return ContextView(num_context=_N, bias=bias, count=torch.tensor([_N]), path=path)


@pytest.mark.parametrize("path", [AttentionPath.REFERENCE, AttentionPath.FAST])
def test_attention_with_one_shared_head_for_queries_is_theirs(generator: torch.Generator, path: AttentionPath) -> None:
    ours, theirs = _attention_pair(generator)
    x, view = _draw(generator, _B, _N + _M, _WIDTH), _view(path)
    source = x if path is AttentionPath.REFERENCE else x[:, :_N]
    expected = theirs(x, _N)[0]
    _assert_equal(ours(x, source, view=view)[:, :_N], expected[:, :_N])
    _assert_equal(ours(x, source, view=view)[:, _N:], expected[:, _N:])


def test_reading_the_cache_is_theirs_and_the_cache_holds_the_same_head(generator: torch.Generator) -> None:
    ours, theirs = _attention_pair(generator)
    x, view = _draw(generator, _B, _N + _M, _WIDTH), _view(AttentionPath.CACHED)
    key, value = ours.query_side(ours.keys_values(x[:, :_N]))
    cache = theirs(x, _N, return_kv=True)[1]
    _assert_equal(key.transpose(1, 2), cache.key)
    _assert_equal(value.transpose(1, 2), cache.value)
    _assert_equal(ours.read_memory(x[:, _N:], (key, value), view=view), theirs(x[:, _N:], 0, cached_kv=cache)[0])


def test_another_head_for_queries_would_be_seen(generator: torch.Generator) -> None:
    ours, theirs = _attention_pair(generator)
    x, view = _draw(generator, _B, _N + _M, _WIDTH), _view(AttentionPath.FAST)
    expected, (key, value) = theirs(x, _N)[0], ours.keys_values(x[:, :_N])
    last = ours.read_memory(x[:, _N:], (key[:, -1:], value[:, -1:]), view=view)
    assert (last - expected[:, _N:]).abs().max() > 1000 * _TOLERANCE


def _decoder_pair(
    generator: torch.Generator, scaling: LengthScaling
) -> tuple[RetrievalClassificationHead, tabpfn_v3.ManyClassDecoder]:
    layer = tabpfn_v3.SoftmaxScalingMLP(_HEADS, _HEAD_WIDTH) if scaling is LengthScaling.QASSMAX else None
    theirs = tabpfn_v3.ManyClassDecoder(160, _WIDTH, _HEAD_WIDTH, _HEADS, softmax_scaling_layer=layer)
    _without_zeros(theirs, generator)
    config = ClassificationHeadConfig(
        num_heads=_HEADS, head_width=_HEAD_WIDTH, length_scaling=scaling, log_form=LogForm.TABPFN3
    )
    ours, weights = RetrievalClassificationHead(_WIDTH, config), theirs.state_dict()
    _copy(
        ours,
        query__weight=weights["q_projection.weight"],
        query__bias=weights["q_projection.bias"],
        key__weight=weights["k_projection.weight"],
        **({} if layer is None else _scaling_weights(layer, "scaling.")),
    )
    return ours, theirs


@pytest.mark.parametrize("scaling", [LengthScaling.NONE, LengthScaling.QASSMAX])
def test_retrieval_is_their_decoder(generator: torch.Generator, scaling: LengthScaling) -> None:
    """6.1: read weights, probabilities, and the logits log(max(p, 1e-5) + 3e-5), whose absent classes ours leaves out.

    Their keys have a bias and ours none: it adds the same to all logits of a query, which the softmax takes away.
    """
    ours, theirs = _decoder_pair(generator, scaling)
    context, queries = 3 * _draw(generator, _B, _N, _WIDTH), 3 * _draw(generator, _B, _M, _WIDTH)
    labels = torch.randint(0, _K, (_B, _N), generator=generator).float()
    labels[:, 0] = _K - 1
    keys = theirs.project_keys(context)
    logits = theirs(keys, queries, labels).transpose(0, 1)[..., :_K]
    probabilities, extra = ours(queries, context, labels, _K)
    _assert_equal(extra["read_weights"], theirs.attention_weights(keys, queries))
    memory = ours.remember(context, labels, _K, None)
    assert memory.present.all()
    _assert_equal(probabilities.clamp_min(1e-5) + 3e-5, logits.exp())
    raw = logarithm(ours.read(queries, memory), memory.present, form=LogForm.TABPFN3, clip=1e-5, mixing=0.5)
    _assert_equal(raw, logits)
    ours_log = log_probabilities(probabilities, memory.present, config=ours.config).log_p
    _assert_equal(ours_log, torch.log_softmax(logits, dim=-1))


def test_the_bias_of_their_keys_cancels(generator: torch.Generator) -> None:
    _, theirs = _decoder_pair(generator, LengthScaling.NONE)
    context, queries = _draw(generator, _B, _N, _WIDTH), _draw(generator, _B, _M, _WIDTH)
    other = copy.deepcopy(theirs)
    with torch.no_grad():
        other.k_projection.bias.add_(5 * _draw(generator, *other.k_projection.bias.shape))
    weights = [one.attention_weights(one.project_keys(context), queries) for one in (theirs, other)]
    _assert_equal(weights[1], weights[0])


@pytest.mark.parametrize("count", [100, 5000])
def test_borders_are_theirs(count: int) -> None:
    """6.9: the published knots. Theirs are in fp32, whose spacing at 128 is 1.5e-5."""
    ours = bucket_borders(BucketConfig(num_buckets=count, rule=BorderRule.TABPFN3))
    theirs = tabpfn_v3._spline_based_regression_borders(count)
    np.testing.assert_allclose(ours.numpy(), theirs.double().numpy(), rtol=1e-6, atol=1e-6)


def _bar_pair(generator: torch.Generator) -> tuple[BarDistribution, FullSupportBarDistribution, Tensor]:
    """Both of one set of logits, in fp64, with much mass in the tails of the first queries."""
    borders = bucket_borders(BucketConfig(num_buckets=64, rule=BorderRule.TABPFN3))
    logits = torch.randn(_B, _M, 64, generator=generator, dtype=torch.float64)
    logits[:, 0, 0], logits[:, 1, -1] = 6.0, 6.0
    nowhere = torch.zeros(_B, 1, dtype=torch.float64)
    ours = BarDistribution(
        log_mass=torch.log_softmax(logits, dim=-1), borders=borders, location=nowhere, scale=nowhere + 1
    )
    return ours, FullSupportBarDistribution(borders.clone()), logits


def _points(generator: torch.Generator) -> Tensor:
    """[B, M, S] over the bars, in the outer buckets, and far beyond the outermost borders."""
    inside = 4 * torch.randn(_B, _M, 40, generator=generator, dtype=torch.float64)
    beyond = 100 + 100 * torch.rand(_B, _M, 20, generator=generator, dtype=torch.float64)
    return torch.cat([inside, beyond, -beyond], dim=-1)


def test_the_density_of_bars_is_theirs_to_the_tails(generator: torch.Generator) -> None:
    """6.9: log density, half-normal tails included."""
    ours, theirs, logits = _bar_pair(generator)
    points = _points(generator)
    wide = logits[:, :, None].expand(-1, -1, points.shape[-1], -1).reshape(-1, 64)
    expected = -theirs(wide, points.reshape(-1)).reshape(points.shape)
    _assert_equal(ours.log_density(points), expected)
    assert (points.abs() > 128).sum() > 50


def test_cdf_and_quantiles_of_bars_are_theirs_to_the_tails(generator: torch.Generator) -> None:
    """6.9: cdf and its inverse, half-normal tails included."""
    ours, theirs, logits = _bar_pair(generator)
    points = _points(generator)
    _assert_equal(ours.cdf(points), theirs.cdf(logits, points))
    levels = torch.tensor([1e-6, 1e-3, 0.1, 0.5, 0.77, 0.999, 1 - 1e-6], dtype=torch.float64)
    expected = torch.stack([theirs.icdf(logits, float(level)) for level in levels], dim=-1)
    _assert_equal(ours.icdf(levels), expected)
    assert expected.abs().max() > 128


def test_moments_of_bars_are_theirs(generator: torch.Generator) -> None:
    """6.9: mean and variance."""
    ours, theirs, logits = _bar_pair(generator)
    _assert_equal(ours.mean(), theirs.mean(logits))
    _assert_equal(ours.variance(), theirs.mean_of_square(logits) - theirs.mean(logits) ** 2)

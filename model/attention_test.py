"""Scaled dot-product attention, its biases and its fused path."""

import pytest
import torch
from torch import nn

from model import attention
from model.attention import Attention, FeedForward, Norm, attend, attention_weights, make_norm, scaled_logits
from model.specimens import distance, redraw


def _random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("width", [4, 64])
def test_logits_have_variance_one_only_after_scaling(width: int) -> None:
    """1.1: var(q·k) ≈ d_k and var after scaling ≈ 1."""
    query, key = _random(20_000, 1, width, seed=1), _random(20_000, 1, width, seed=2)
    raw = (query * key).sum(-1).var()
    scaled = scaled_logits(query, key).var()
    assert float(raw) == pytest.approx(width, rel=0.05)
    assert float(scaled) == pytest.approx(1.0, rel=0.05)


def test_temperature_divides_the_logits() -> None:
    """1.1: temperature is explicit."""
    query, key = _random(3, 8, seed=1), _random(5, 8, seed=2)
    assert distance(scaled_logits(query, key, temperature=2.0), scaled_logits(query, key) / 2) < 1e-12
    sharp = attention_weights(query, key, temperature=1e-3)
    assert torch.equal(sharp.argmax(-1), (query @ key.T).argmax(-1))
    assert float(sharp.max(-1).values.min()) > 0.999


def test_weights_are_the_softmax_of_the_visible_keys_alone() -> None:
    """5.6: forbidden keys have weight exactly 0, and the rest is what it would be without them."""
    query, key = _random(2, 3, 4, 8, seed=1), _random(2, 3, 6, 8, seed=2)
    bias = torch.zeros(1, 1, 4, 6).index_fill(-1, torch.tensor([1, 4]), -torch.inf)
    weights = attention_weights(query, key, bias=bias)
    assert (weights[..., [1, 4]] == 0).all()
    visible = [0, 2, 3, 5]
    assert distance(weights[..., visible], attention_weights(query, key[..., visible, :])) < 1e-14


@pytest.mark.parametrize("fused", [False, True])
def test_a_row_that_sees_nothing_reads_nothing_and_spoils_no_gradient(
    fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5.5: minus infinity on a whole row neither opens a key nor makes a NaN."""
    monkeypatch.setattr(attention, "_EXPLICIT_LOGITS", 0 if fused else 1 << 26)
    parts = [_random(2, 2, length, 4, seed=length).requires_grad_() for length in (3, 5, 6)]
    query, key, value = parts[0], parts[1], parts[2][..., :5, :]
    bias = torch.zeros(2, 1, 1, 5)
    bias[1] = -torch.inf
    output = attend(query, key, value, bias=bias)
    assert (output[1] == 0).all()
    assert (output[0] != 0).all()
    if not fused:
        assert (attention_weights(query, key, bias=bias)[1] == 0).all()
    output.sum().backward()
    assert all(part.grad.isfinite().all() for part in parts)


@pytest.mark.parametrize("bias_shape", [None, (2, 1, 1, 1, 6), (2, 1, 1, 4, 6), (2, 7, 2, 4, 6)])
def test_the_fused_path_equals_the_explicit_one(
    bias_shape: tuple[int, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the batch is cut into pieces that the kernels can take."""
    query, key, value = _random(2, 7, 2, 4, 8, seed=1), _random(2, 7, 2, 6, 8, seed=2), _random(2, 7, 2, 6, 8, seed=3)
    bias = None
    if bias_shape is not None:
        hidden = torch.rand(bias_shape, generator=torch.Generator().manual_seed(4)) < 0.4
        hidden[..., 0] = False
        hidden[1, 0] = True
        bias = torch.zeros(bias_shape).masked_fill(hidden, -torch.inf)
    explicit = attend(query, key, value, bias=bias)
    monkeypatch.setattr(attention, "_EXPLICIT_LOGITS", 0)
    monkeypatch.setattr(attention, "_FUSED_BATCH", 5)
    fused = attend(query, key, value, bias=bias)
    assert fused.shape == explicit.shape
    assert distance(fused, explicit) < 1e-12


def test_key_bias_hides_padding_and_is_absent_without_it() -> None:
    """5.7: invalid rows are removed on the key side."""
    assert attention.key_bias(None) is None
    bias = attention.key_bias(torch.tensor([[True, False], [True, True]]))
    assert bias.shape == (2, 1, 1, 2)
    assert bias[:, 0, 0].tolist() == [[0.0, -torch.inf], [0.0, 0.0]]


def test_keys_carry_no_position() -> None:
    """1.4: permuting keys with their values leaves the output unchanged to rounding."""
    query, key, value = _random(2, 4, 8, seed=1), _random(2, 6, 8, seed=2), _random(2, 6, 8, seed=3)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    assert distance(attend(query, key, value), attend(query, key[:, order], value[:, order])) < 1e-14


def test_heads_split_and_merge_back() -> None:
    """Head h holds entries h·D_h … (h+1)·D_h - 1."""
    x = torch.arange(24.0).view(1, 2, 12)
    heads = attention.split_heads(x, 3)
    assert heads.shape == (1, 3, 2, 4)
    assert heads[0, 1, 0].tolist() == [4.0, 5.0, 6.0, 7.0]
    assert torch.equal(attention.merge_heads(heads), x)


def test_multi_head_attention_matches_torch() -> None:
    """An independent implementation with the same weights gives the same output."""
    ours = Attention(8, num_heads=2).double()
    redraw(ours)
    theirs = nn.MultiheadAttention(8, 2, bias=False, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key_value.weight]))
        theirs.out_proj.weight.copy_(ours.output.weight)
    x, source = _random(2, 3, 8, seed=1), _random(2, 5, 8, seed=2)
    assert distance(ours(x, source), theirs(x, source, source)[0]) < 1e-12


def test_fresh_blocks_add_nothing() -> None:
    """1.3: residual branches start at zero."""
    x = _random(1, 3, 8, dtype=torch.float32)
    assert (Attention(8, num_heads=2)(x, x) == 0).all()
    assert (FeedForward(8, factor=2)(x) == 0).all()


def test_feed_forward_works_on_each_position_alone() -> None:
    """1.3: position-wise feed-forward."""
    layer = FeedForward(8, factor=3).double()
    redraw(layer)
    x = _random(2, 5, 8)
    assert distance(layer(x)[:, 2], layer(x[:, 2:3])[:, 0]) < 1e-14
    assert layer.inner.weight.shape == (24, 8)


def test_norm_is_layer_or_rms_by_configuration() -> None:
    """1.3: LayerNorm or RMSNorm by configuration."""
    x = 3.0 + _random(4, 16)
    layer, rms = make_norm(Norm.LAYER, 16).double(), make_norm(Norm.RMS, 16).double()
    assert isinstance(layer, nn.LayerNorm)
    assert float(layer(x).detach().mean(-1).abs().max()) < 1e-12
    assert distance(rms(x), x / (x**2).mean(-1, keepdim=True).sqrt()) < 1e-6


def test_low_precision_is_raised_and_high_is_kept() -> None:
    """Softmaxes and losses run in fp32 at least."""
    assert attention.at_least_fp32(torch.zeros(1, dtype=torch.bfloat16)).dtype is torch.float32
    assert attention.at_least_fp32(torch.zeros(1, dtype=torch.float64)).dtype is torch.float64

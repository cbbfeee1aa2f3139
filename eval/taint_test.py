"""Taint is sound (what moves is tainted), exact where masks are constant, and blind to no branch or array."""

import contextlib
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from eval import taint_rules
from eval.taint import FOREIGN, WEIGHTS, TaintTracker, Untraceable

Function = Callable[[Tensor, Tensor], Tensor]
_SHAPE = (3, 4)


def _drawn(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(_SHAPE, generator=generator), torch.randn(_SHAPE, generator=generator)


def _traced(function: Function, *, seed: int = 0) -> tuple[Tensor, TaintTracker]:
    """The sets of function(a, b), every element of a and b with a bit of its own (bits 2 to 13 and 14 to 25)."""
    (a, b), tracker = _drawn(seed), TaintTracker()
    bits = 1 << torch.arange(2, 2 + 2 * a.numel())
    tracker.mark(a, bits[: a.numel()].reshape(_SHAPE))
    tracker.mark(b, bits[a.numel() :].reshape(_SHAPE))
    with tracker:
        out = function(a, b).clone()
    return tracker.of(out), tracker


def _moved(function: Function, *, seed: int) -> Tensor:
    """The sets that are found by changing one element after the other."""
    inputs = _drawn(seed)
    base, found = function(*inputs), torch.zeros((), dtype=torch.int64)
    for which in range(2):
        for place in range(inputs[0].numel()):
            for value in (-3.0, -0.4, 0.3, 5.0):
                changed = [part.clone() for part in inputs]
                changed[which].view(-1)[place] = value
                bit = 1 << (2 + which * inputs[0].numel() + place)
                found = found | torch.where(function(*changed) != base, bit, 0)
    return found


def _scattered(a: Tensor, b: Tensor) -> Tensor:
    return torch.zeros(3, 6).scatter_(1, (b > 0).long() + 2, 1.0) * a.sum(1, keepdim=True)


def _written(a: Tensor, b: Tensor) -> Tensor:
    out = a.clone()
    out[:, 1:] += b[:, 1:]
    out.t()[0] = b[:, 2]
    return out


def _half_bias() -> Tensor:
    return torch.zeros(3, 3).masked_fill(torch.ones(3, 3, dtype=torch.bool).triu(2), -torch.inf)


def _attention(a: Tensor, b: Tensor) -> Tensor:
    return torch.softmax(a @ b.t() + _half_bias(), -1) @ b


def _two_targets(a: Tensor, b: Tensor) -> Tensor:
    mantissa, exponent = torch.zeros(3, 4), torch.zeros(3, 4, dtype=torch.int32)
    torch.frexp(a, out=(mantissa, exponent))
    return exponent + b


def _concatenated(a: Tensor, b: Tensor) -> Tensor:
    side, stack = torch.zeros(3, 8), torch.zeros(2, 3, 4)
    torch.hstack([a, b], out=side)
    torch.stack([a, b], out=stack)
    return side + stack.reshape(3, 8)


def _picked_into(a: Tensor, b: Tensor) -> Tensor:
    out = torch.zeros(3, 2)
    torch.gather(a, 1, torch.tensor([[0, 1]] * 3), out=out)
    return torch.index_select(b, 1, torch.tensor([1, 2]), out=torch.zeros(3, 2)) + out


def _resized(a: Tensor, b: Tensor) -> Tensor:
    grown = torch.zeros(1).resize_(12).copy_(a.flatten()).reshape(_SHAPE)
    return torch.mul(grown, b, out=torch.zeros(0))


def _running(a: Tensor, b: Tensor) -> Tensor:
    mean, variance = torch.zeros(4), torch.ones(4)
    F.batch_norm(a, mean, variance, training=True)
    return mean + variance + b


def _memory_read_by_numpy(a: Tensor, b: Tensor) -> Tensor:
    memory = np.zeros(_SHAPE, np.float32)
    torch.from_numpy(memory).copy_(a)
    return torch.tensor(memory) + b


def _memory_given_to_numpy(a: Tensor, b: Tensor) -> Tensor:
    kept = torch.zeros(_SHAPE)
    memory = kept.numpy()
    kept.copy_(a)
    return b + float(memory[0, 0])


def _caught(a: Tensor, b: Tensor) -> Tensor:
    with contextlib.suppress(RuntimeError):
        torch.linalg.cholesky(a[:, :3] @ a[:, :3].t() + torch.diag(a[:, 3]))
        return b * 2
    return b


def _packed(a: Tensor, b: Tensor) -> Tensor:
    lengths = (a > 0).sum(1).clamp_min(1)
    packed = torch.nn.utils.rnn.pack_padded_sequence(b[..., None], lengths, batch_first=True, enforce_sorted=False)
    return b * len(packed.data)


def _known_places(a: Tensor, b: Tensor) -> Tensor:
    out = a.clone()
    out[:, torch.arange(2)] = b[:, [2, 3]]
    out[torch.tensor([True, False, True])] += b[:2]
    return out


def _masked_rows(a: Tensor, b: Tensor) -> Tensor:
    real = torch.tensor([True, False, True])
    chosen = a[real] + torch.masked_select(b, real[:, None]).reshape(2, 4)
    return torch.cat([chosen, a[real.nonzero()[:, 0]]]).repeat_interleave(torch.tensor([1, 2, 1, 1]), dim=0)


def _written_twice(a: Tensor, b: Tensor) -> Tensor:
    return torch.zeros(_SHAPE).index_put_((torch.tensor([0, 0, 1]),), a).index_put_((torch.tensor([2]),), b[0])


_OFFSETS = torch.tensor([-20.0, 0.0, 20.0, 40.0])


FUNCTIONS: dict[str, Function] = {
    "arithmetic": lambda a, b: (a * 2 + b).tanh() / (1 + b**2),
    "linear": lambda a, b: F.linear(a, b),
    "masked attention": _attention,
    "batched product": lambda a, b: torch.bmm(a[None].expand(2, -1, -1), b.t()[None].expand(2, -1, -1)),
    "added product": lambda a, b: torch.addmm(a[:, :3], b, b.t()),
    "vector product": lambda a, b: a @ b[0],
    "log softmax": lambda a, b: torch.log_softmax(a, 1) + b,
    "layer norm": lambda a, b: F.layer_norm(a, (4,)) * b[:, :1],
    "rms norm": lambda a, b: F.rms_norm(a, (4,)) + b[0],
    "fused attention": lambda a, b: F.scaled_dot_product_attention(a[None, None], b[None, None], b[None, None]),
    "fused masked attention": lambda a, b: F.scaled_dot_product_attention(
        a[None, None], b[None, None], b[None, None], attn_mask=_half_bias()
    ),
    "reductions": lambda a, b: a.mean(0) + b.amax(0) + a.sum() + b.abs().sum(0) + a.std(0),
    "extremes": lambda a, b: torch.maximum(a, b).max(1).values + a.min() + a.argmax(1),
    "two-valued": lambda a, b: ((a > 0) & (b > 0) | (a < -1)).any(0).float(),
    "condition": lambda a, b: torch.where(a > 0, b, 1.0),
    "filling": lambda a, b: a.masked_fill(b > 0, 0.5),
    "sorting": lambda a, b: a.sort(1).values + b.cumsum(1) + b.topk(4, 1).values,
    "searching": lambda a, b: torch.searchsorted(a.sort(1).values.contiguous(), b.contiguous()),
    "gathering": lambda a, b: a.gather(1, (b > 0).long()) + a.gather(1, torch.tensor([[0, 1, 0, 3]] * 3)),
    "indexing": lambda a, b: a[(b[:, 0] > 0).long()],
    "embedding": lambda a, b: F.embedding((b[:, 0] > 0).long(), a),
    "one-hot": lambda a, b: F.one_hot((a[:, 0] > 0).long(), 2).float() @ b[:2],
    "scattering": _scattered,
    "moving": lambda a, b: torch.cat([a.roll(1, 1), b.flip(0)]).repeat(2, 1)[1:].t().reshape(-1, 2),
    "stacking": lambda a, b: torch.stack([a.t(), b.t()], 1).flatten(0, 1).unflatten(0, (2, -1)).repeat_interleave(2, 1),
    "padding": lambda a, b: F.pad(a, (1, 0)) + F.pad(b, (0, 1)),
    "writing in place": _written,
    "triangles": lambda a, b: a.tril() + b.triu(),
    "without a rule": lambda a, b: torch.cdist(a, b).sum() + torch.linalg.inv(b[:, :3] + 9 * torch.eye(3)),
    "mask of values": lambda a, b: (a * b)[a > 0].sum().expand(3),
    "branch": lambda a, b: a * 2 if a.sum() > 0 else b,
    "array": lambda a, b: torch.from_numpy(a.numpy() * 2) + b,
    "list": lambda a, b: torch.tensor(a.tolist()) + b,
    "number": lambda a, b: b + a[0, 0].item(),
    "tensor of numbers": lambda a, b: b + torch.tensor([[a[0, 0], a[0, 1], 0, 1]]),
    "tensor of rows": lambda a, b: b + torch.tensor(list(a[0])),
    "as_tensor of numbers": lambda a, b: b + torch.as_tensor([a[0, 0]]) + torch.asarray([a[0, 1]]),
    "new_tensor of numbers": lambda a, b: b + b.new_tensor([a[0, 0]]) + b.new([a[0, 1]]),
    "legacy constructors": lambda a, b: b + torch.Tensor([a[0, 0]]) + torch.FloatTensor([a[0, 1]]),
    "tensor of decisions": lambda a, b: b * 2 if torch.tensor([(a > -2).all()])[0] else b,
    "list of indices": lambda a, b: b[:, [(a[0, 0] > 0).long(), (a[0, 1] > 0).long()]],
    "splitting": lambda a, b: b + torch.tensor_split(b, (a[0] > 0).sum()[None], 1)[0].sum(),
    "concatenating into": _concatenated,
    "picking into": _picked_into,
    "two targets": _two_targets,
    "targets that grow": _resized,
    "running statistics": _running,
    "buckets": lambda a, b: torch.bucketize(a[0].contiguous(), b[0] + _OFFSETS),
    "fewer values than buckets": lambda a, b: torch.bucketize(a[:, 0].contiguous(), b[0] + _OFFSETS),
    "searching sorted elsewhere": lambda a, b: torch.searchsorted(_OFFSETS, b, sorter=a[0].argsort()),
    "one-hot of unknown width": lambda a, b: b * F.one_hot((a[0] > 0).sum()).shape[0],
    "memory read by numpy": _memory_read_by_numpy,
    "memory given to numpy": _memory_given_to_numpy,
    "text": lambda a, b: b + float(repr(a[0, 0])[len("tensor(") : -1]),
    "called back": lambda a, b: b + torch.zeros(_SHAPE).map_(a.clone().apply_(lambda x: 2 * x), lambda x, y: y),
    "caught error": _caught,
    "packed sequence": _packed,
    "repeats by counts": lambda a, b: b.repeat_interleave((a[0] > 0).long() + 1, dim=1)[:, :4] + b,
    "known places": _known_places,
    "masked rows": _masked_rows,
    "written twice": _written_twice,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("seed", [0, 1])
def test_what_moves_an_element_is_in_its_set(name: str, seed: int) -> None:
    """Soundness by example: every dependence that a changed value shows is in the sets."""
    taint, _ = _traced(FUNCTIONS[name], seed=seed)
    moved = _moved(FUNCTIONS[name], seed=seed)
    assert moved.any()
    assert not (moved & ~taint).any()


EXACT = (
    "arithmetic",
    "linear",
    "masked attention",
    "moving",
    "stacking",
    "padding",
    "writing in place",
    "triangles",
    "known places",
    "masked rows",
    "concatenating into",
    "picking into",
)


@pytest.mark.parametrize("name", EXACT)
def test_sets_are_exact_where_every_place_is_known(name: str) -> None:
    """No source too many: a calculus that taints everything would find every network guilty."""
    taint, tracker = _traced(FUNCTIONS[name])
    assert torch.equal(taint & ~WEIGHTS, _moved(FUNCTIONS[name], seed=0))
    assert not tracker.mixed and not tracker.branches


def test_a_weight_of_zero_cuts_nothing() -> None:
    """A path through a zero, be it a parameter, a number or a foreign tensor, is a path."""
    zero, elsewhere, tracker, a = torch.zeros(()), torch.zeros(3, 3), TaintTracker(), torch.ones(3)
    tracker.mark(a, 4)
    tracker.mark(zero, WEIGHTS)
    gate = torch.zeros(3, 3)
    tracker.mark(gate, torch.full((3, 3), 8))
    with tracker:
        found = [a * zero, a * 0.0, zero.expand(3, 3) @ a[:, None], elsewhere @ a[:, None], gate @ a[:, None]]
        cut = torch.zeros(3, 3) @ a[:, None]
    assert [int(tracker.of(item).flatten()[0]) for item in found] == [4 | WEIGHTS, 4, 4 | WEIGHTS, 4 | FOREIGN, 4 | 8]
    assert not tracker.of(cut).any()


def test_only_a_known_minus_infinity_hides_a_key() -> None:
    """A finite fill hides nothing, nor does a mask that depends on a source."""
    logits, tracker = torch.zeros(2), TaintTracker()
    tracker.mark(logits, torch.tensor([4, 8]))
    with tracker:
        hidden = torch.tensor([False, True])
        known = torch.softmax(logits + torch.zeros(2).masked_fill(hidden, -torch.inf), 0)
        finite = torch.softmax(logits + torch.zeros(2).masked_fill(hidden, -1e9), 0)
        filled = torch.softmax(logits.masked_fill(hidden, -1e9), 0)
        own = torch.softmax(logits.masked_fill(torch.stack([hidden[0], logits[0] == 0]), -torch.inf), 0)
    sets = [tracker.of(item).tolist() for item in (known, finite, filled, own)]
    assert sets == [[4, 0], [12, 12], [4, 4], [12, 12]]


def test_branches_arrays_and_operations_without_a_rule_are_named() -> None:
    """Nothing is dropped silently."""
    assert _traced(FUNCTIONS["branch"])[1].branches == ["aten._local_scalar_dense"]
    assert _traced(FUNCTIONS["array"])[1].branches == ["numpy"]
    assert _traced(FUNCTIONS["list"])[1].branches == ["tolist"]
    assert _traced(FUNCTIONS["mask of values"])[1].branches == ["aten.index"]
    assert "aten.linalg_inv_ex" in _traced(lambda a, b: torch.linalg.inv(b[:, :3]))[1].mixed


def test_a_check_that_only_raises_is_no_branch() -> None:
    """one_hot looks at its classes and goes on."""
    _, tracker = _traced(FUNCTIONS["one-hot"])
    assert tracker.branches == [] and tracker.guards["one_hot"] > 0


def test_the_width_of_classes_that_are_counted_is_no_check() -> None:
    """Without a number of classes, the shape tells the highest of them."""
    _, tracker = _traced(FUNCTIONS["one-hot of unknown width"])
    assert tracker.branches and not tracker.guards


def test_only_numbers_are_known_when_python_hands_them_over() -> None:
    """Numbers of the program are constants; memory of numpy may hold anything, now and later."""
    tracker, array = TaintTracker(), np.zeros(2, np.float32)
    with tracker:
        known = [torch.tensor([0.0, 1]), torch.Tensor([1.0]), torch.tensor(torch.zeros(2).shape), torch.tensor(np.pi)]
        shared = torch.from_numpy(array), torch.as_tensor(array), torch.asarray(array), torch.Tensor(array)
        foreign = [*shared, torch.tensor(array), torch.frombuffer(array, dtype=torch.float32) * 1]
        seen = torch.zeros(2)
        seen.numpy()
    assert not any(tracker.of(item).any() for item in known)
    assert all((tracker.of(item) == FOREIGN).all() for item in (*foreign, seen))


def test_a_rule_that_fails_names_its_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict says what cannot be followed, also where the network goes on as if nothing had happened."""

    def broken(call: taint_rules.Call) -> list[Tensor]:
        return [torch.zeros(7, 7, 7, dtype=torch.int64)]

    monkeypatch.setitem(taint_rules.RULES, "aten.flip", broken)
    tracker = TaintTracker()
    with pytest.raises(Untraceable, match="aten.flip"), tracker:
        torch.ones(3).flip(0)
    with contextlib.suppress(RuntimeError), tracker:
        torch.ones(3).flip(0)
    assert tracker.hidden is not None and tracker.hidden.startswith("aten.flip: ")


def test_a_storage_read_as_elements_of_another_size_is_refused() -> None:
    """Its sets would stand beside the wrong elements."""
    with pytest.raises(Untraceable, match="4-byte"):
        _traced(lambda a, b: a.view(torch.int16))

"""Rules of taint: for an operation, which sources each element of its outputs may depend on (see `eval.taint`).

Every rule takes a `Call` and returns a set tensor for each output, broadcastable to its shape; it runs before the
operation. Views need no rule. `fold` is the union along a dimension; *known* means: of no source, so of one value.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

_MOST_TRIPLES = 1 << 22  # of a matrix product, up to which known zeros are looked at


@dataclasses.dataclass(frozen=True, kw_only=True)
class Call:
    """One operation about to run.

    Args:
        name: such as `aten.mm`, without the overload.
        func: the operation.
        args: positional arguments.
        kwargs: the others.
        of: tensor → its sets.
        writes: whether it writes into an argument.
    """

    name: str
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    of: Callable[[Tensor], Tensor]
    writes: bool

    def argument(self, name: str, default: Any = None) -> Any:
        """An argument by its name in the schema."""
        for position, argument in enumerate(self.func._schema.arguments):
            if argument.name == name:
                if position < len(self.args):
                    return self.args[position]
                return self.kwargs.get(name, argument.default_value if argument.has_default_value() else default)
        return default

    def replay(self, taint: Any) -> Tensor:
        """What the operation makes of sets instead of its first argument; nothing is written."""
        others = {name: value for name, value in self.kwargs.items() if name != "out"}
        return self.func.overloadpacket(taint, *self.args[1:], **others)

    def read_by_name(self) -> list[Any]:
        """The keyword arguments that are not mere targets."""
        if not (self.writes and self.kwargs):
            return list(self.kwargs.values())
        schema = self.func._schema.arguments
        targets = {item.name for item in schema if item.alias_info is not None and item.alias_info.is_write}
        return [value for name, value in self.kwargs.items() if name not in targets]

    def taint(self, value: Any) -> Tensor:
        """The sets of an argument; a number has none."""
        return self.of(value) if isinstance(value, Tensor) else torch.zeros((), dtype=torch.int64)


Rule = Callable[[Call], "list[Tensor] | None"]


def fold(taint: Tensor, dim: int) -> Tensor:
    """Union along one dimension, which stays with size 1."""
    size = taint.shape[dim]
    if size == 0:
        return torch.zeros_like(taint.sum(dim, keepdim=True))
    if taint.stride(dim) == 0:
        return taint.narrow(dim, 0, 1)
    while size > 1:
        half = size // 2
        folded = taint.narrow(dim, 0, half) | taint.narrow(dim, half, half)
        if size % 2:
            folded.narrow(dim, 0, 1).bitwise_or_(taint.narrow(dim, size - 1, 1))
        taint, size = folded, half
    return taint


def fold_all(taint: Tensor, dims: Any) -> Tensor:
    """Union along several dimensions, which stay with size 1; no dimensions means all."""
    for dim in range(taint.dim()) if dims is None or dims == [] else ([dims] if isinstance(dims, int) else dims):
        taint = fold(taint, dim)
    return taint


def union(taint: Tensor) -> int:
    """All sources of a tensor."""
    return int(fold_all(taint, None)) if taint.numel() else 0


def pointwise(call: Call) -> list[Tensor]:
    """Every element of the output comes from the elements at its place."""
    total = torch.zeros((), dtype=torch.int64)
    for item in (*call.args, *call.read_by_name()):
        for part in item if isinstance(item, list | tuple) else (item,):
            if isinstance(part, Tensor):
                total = total | call.of(part)
    return [total] * max(1, len(call.func._schema.returns))


def _cut(call: Call, what: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """`pointwise`, where a known element of a kind fixes the result (-inf + x, False & x, True | x)."""
    total = pointwise(call)[0]
    if call.writes:
        return [total]
    for value in call.args[:2]:
        if isinstance(value, Tensor):
            total = total.masked_fill((call.of(value) == 0) & what(value), 0)
    return [total]


def _add(call: Call) -> list[Tensor]:
    floats = all(not isinstance(v, Tensor) or v.is_floating_point() for v in call.args[:2])
    return _cut(call, torch.isneginf) if floats and "alpha" not in call.kwargs else pointwise(call)


def _conjunction(call: Call) -> list[Tensor]:
    return _cut(call, _is_false) if _all_bool(call) else pointwise(call)


def _disjunction(call: Call) -> list[Tensor]:
    return _cut(call, lambda x: x) if _all_bool(call) else pointwise(call)


def _is_false(x: Tensor) -> Tensor:
    return ~x


def _all_bool(call: Call) -> bool:
    return all(isinstance(value, Tensor) and value.dtype is torch.bool for value in call.args[:2])


def _where(call: Call) -> list[Tensor] | None:
    if len(call.args) < 3:
        return None
    condition, yes, no = call.args
    taint, yes, no = call.of(condition), call.taint(yes), call.taint(no)
    return [torch.where(taint == 0, torch.where(condition, yes, no), taint | yes | no)]


def _masked_fill(call: Call) -> list[Tensor]:
    value, mask, fill = call.args
    taint, fill = call.of(mask), call.taint(fill)
    return [torch.where(taint == 0, torch.where(mask, fill, call.of(value)), taint | fill | call.of(value))]


def _softmax(call: Call) -> list[Tensor]:
    """A key at a known minus infinity has weight 0 (or logarithm minus infinity) and is not looked at."""
    value, dim = call.args[:2]
    taint = call.of(value)
    hidden = (taint == 0) & value.isneginf()
    return [fold(taint, dim).expand_as(taint).masked_fill(hidden, 0)]


def _layer_norm(call: Call) -> list[Tensor]:
    value = call.args[0]
    rows = fold_all(call.of(value), range(value.dim() - len(call.args[1]), value.dim()))
    for weight in call.args[2:4]:
        if isinstance(weight, Tensor):
            rows = rows | union(call.of(weight))
    return [rows.expand_as(value), rows, rows]


def _matmul(call: Call) -> list[Tensor]:
    left, right = call.args[:2]
    return [product(left, right, taints=(call.of(left), call.of(right)))]


def _matmul_added(call: Call) -> list[Tensor]:
    added, left, right = call.args[:3]
    return [call.of(added) | product(left, right, taints=(call.of(left), call.of(right)))]


def _vector_product(call: Call) -> list[Tensor]:
    return [fold(call.of(call.args[0]), -1).squeeze(-1) | union(call.of(call.args[1]))]


def product(left: Tensor, right: Tensor, *, taints: tuple[Tensor, Tensor]) -> Tensor:
    """Sets of left [..., L, S] @ right [..., S, D]: a known 0 takes its partner out."""
    a, b = taints
    zero_a, zero_b = _zeros(left, a), _zeros(right, b)
    if (zero_a is None and zero_b is None) or left.numel() * right.shape[-1] > _MOST_TRIPLES:
        return fold(a, -1) | fold(b, -2)
    total = torch.zeros((*left.shape[:-1], right.shape[-1]), dtype=torch.int64)
    for place in range(left.shape[-1]):
        term = a[..., :, place, None] | b[..., place, None, :]
        if zero_a is not None:
            term = term.masked_fill(zero_a[..., :, place, None], 0)
        if zero_b is not None:
            term = term.masked_fill(zero_b[..., place, None, :], 0)
        total |= term
    return total


def _zeros(value: Tensor, taint: Tensor) -> Tensor | None:
    """Where a factor is a known 0, or None when it is nowhere."""
    if not taint.numel() or (not any(taint.stride()) and taint[(0,) * taint.dim()] != 0):  # weights have one set
        return None
    found = (taint == 0) & (value == 0)
    return found if bool(found.any()) else None


def _fused_attention(call: Call) -> list[Tensor] | None:
    """softmax(q·k + bias) @ v; other outputs serve gradients only."""
    query, key, value = call.args[:3]
    bias = call.argument("attn_mask", call.argument("attn_bias"))
    if call.argument("is_causal", False) or query.shape[-3] != key.shape[-3]:
        return None
    logits = fold(call.of(query), -1) | fold(call.of(key), -1).transpose(-1, -2)
    hidden = torch.zeros_like(logits, dtype=torch.bool)
    if bias is not None:
        hidden = ((call.of(bias) == 0) & bias.isneginf()).expand_as(logits)
        logits = logits | call.of(bias)
    read = fold(logits.masked_fill(hidden, 0), -1).expand_as(logits).masked_fill(hidden, 0)
    weights = (~hidden).to(query.dtype)
    out = product(weights, value, taints=(read, call.of(value)))
    return [out, torch.tensor(union(out))]


def _alone(call: Call) -> bool:
    """Whether no tensor but the first argument is read."""
    rest = tree_flatten((call.args[1:], {name: v for name, v in call.kwargs.items() if name != "out"}))[0]
    return not any(isinstance(item, Tensor) for item in rest)


def _reduced(call: Call) -> list[Tensor] | None:
    """Union over the reduced dimensions."""
    if not _alone(call):
        return None
    value, dims, keep = call.args[0], call.argument("dim"), bool(call.argument("keepdim", False))
    taint = fold_all(call.of(value), dims)
    if not keep and value.dim():
        whole = dims is None or dims == []
        gone = range(value.dim()) if whole else [dims] if isinstance(dims, int) else dims
        taint = taint.squeeze(tuple(gone))
    return [taint, taint]


def _along(call: Call) -> list[Tensor] | None:
    """Every output element may come from anywhere along one dimension."""
    if not _alone(call):
        return None
    taint, dim = call.of(call.args[0]), call.argument("dim", -1)
    folded = fold(taint, dim) if taint.dim() else taint
    return [folded, folded]


def _searchsorted(call: Call) -> list[Tensor] | None:
    """Which place a value has depends on all of the ordered ones, and on what orders them."""
    ordered, wanted = call.args[:2]
    if call.name == "aten.bucketize":
        ordered, wanted = wanted, ordered
    if not isinstance(wanted, Tensor):
        return None
    order, sorter = fold(call.of(ordered), -1), call.argument("sorter")
    return [call.of(wanted) | (order if sorter is None else order | fold(call.of(sorter), -1))]


def _index(call: Call) -> list[Tensor] | None:
    value, indices = call.args[0], call.args[1]
    taint = call.of(value)
    if all(index is None or not call.of(index).any() for index in indices):
        return [torch.ops.aten.index(taint, indices)]
    if any(index is None or index.dtype in (torch.bool, torch.uint8) for index in indices):
        return None
    rest = fold_all(taint, range(len(indices))).flatten(0, len(indices) - 1)[0]
    place = torch.zeros((), dtype=torch.int64)
    for index in indices:
        place = place | call.of(index)
    return [place.reshape(place.shape + (1,) * rest.dim()) | rest]


def _index_put(call: Call) -> list[Tensor] | None:
    """At known places the value's sets; where a place is written twice, those of all values."""
    target, indices, value = call.args[:3]
    if any(index is not None and call.of(index).any() for index in indices):
        return None
    before, put = call.of(target).clone(), torch.ops.aten.index_put
    times = put(torch.zeros_like(before), indices, torch.ones((), dtype=torch.int64), True)
    if call.argument("accumulate", False):
        return [torch.where(times > 0, before | union(call.of(value)), before)]
    after = put(before, indices, call.of(value))
    return [torch.where(times > 1, union(call.of(value)), after)]


def _masked_select(call: Call) -> list[Tensor] | None:
    value, mask = call.args[:2]
    return None if call.of(mask).any() else [torch.ops.aten.masked_select(call.of(value), mask)]


def _everything(call: Call) -> list[Tensor]:
    """Every element depends on all of the first argument: places of what is there, repeats by counts."""
    return [torch.tensor(union(call.of(call.args[0])))]


def _embedding(call: Call) -> list[Tensor]:
    weight, index = call.args[:2]
    return [fold(call.of(weight), 0)[0] | call.of(index)[..., None]]


def _gather(call: Call) -> list[Tensor]:
    value, dim, index = call.args[:3]
    if not call.of(index).any():
        return [torch.ops.aten.gather(call.of(value).contiguous(), dim, index)]
    taint = fold(call.of(value), dim)
    for other in range(taint.dim()):
        taint = taint if taint.shape[other] == 1 else taint.narrow(other, 0, index.shape[other])
    return [taint | call.of(index)]


def _scatter_value(call: Call) -> list[Tensor] | None:
    value, dim, index = call.args[:3]
    places = [size for axis, size in enumerate(index.shape) if axis != dim % index.dim()]
    if places != [size for axis, size in enumerate(value.shape) if axis != dim % value.dim()]:
        return None
    return [call.of(value) | fold(call.of(index), dim) | union(call.taint(call.args[3]))]


def _moved(call: Call) -> list[Tensor] | None:
    """The operation moves elements: it moves their sets alike, where it is known how."""
    if not _alone(call) and any(call.of(item).any() for item in call.args[1:] if isinstance(item, Tensor)):
        return None
    first = call.args[0]
    taints = [call.of(part) for part in first] if isinstance(first, list | tuple) else call.of(first)
    return [call.replay(taints)]


def _kept(call: Call) -> list[Tensor]:
    return [call.of(call.args[0])]


def _reshaped(call: Call) -> list[Tensor]:
    return [call.of(call.args[0]).reshape(call.args[1])]


def _padded(call: Call) -> list[Tensor] | None:
    return None if not _alone(call) else [torch.nn.functional.pad(call.of(call.args[0]), call.args[1])]


def _copied(call: Call) -> list[Tensor]:
    return [call.of(call.args[1])]


def _filled(call: Call) -> list[Tensor]:
    return [call.taint(call.args[1]) if len(call.args) > 1 else torch.zeros((), dtype=torch.int64)]


def _rules(names: str, rule: Rule) -> dict[str, Rule]:
    return {f"aten.{name}": rule for name in names.split()}


RULES: dict[str, Rule] = {
    **_rules("add", _add),
    **_rules("bitwise_and logical_and", _conjunction),
    **_rules("bitwise_or logical_or", _disjunction),
    **_rules("where", _where),
    **_rules("masked_fill masked_fill_", _masked_fill),
    **_rules("_softmax _log_softmax", _softmax),
    **_rules("native_layer_norm _fused_rms_norm", _layer_norm),
    **_rules("mm bmm", _matmul),
    **_rules("mv dot", _vector_product),
    **_rules("addmm baddbmm", _matmul_added),
    **_rules("_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention", _fused_attention),
    **_rules("sum mean amax amin any all max min prod argmax argmin aminmax logsumexp var std norm", _reduced),
    **_rules("linalg_vector_norm", _reduced),
    **_rules("sort argsort cumsum cumprod topk logcumsumexp", _along),
    **_rules("searchsorted bucketize", _searchsorted),
    **_rules("index", _index),
    **_rules("index_put index_put_ _index_put_impl_", _index_put),
    **_rules("masked_select", _masked_select),
    **_rules("embedding", _embedding),
    **_rules("gather", _gather),
    **_rules("scatter scatter_", _scatter_value),
    **_rules("cat stack roll flip repeat index_select tril triu diagonal_copy", _moved),
    **_rules("repeat_interleave nonzero", _everything),
    **_rules("clone _to_copy contiguous lift_fresh lift_fresh_copy", _kept),
    **_rules("_unsafe_view view_copy", _reshaped),
    **_rules("constant_pad_nd", _padded),
    **_rules("copy_ copy", _copied),
    **_rules("fill_ zero_", _filled),
}
"""Rules by operation; those that the library tags as pointwise need none."""

FACTORIES = frozenset(f"aten.{kind}_like" for kind in ("zeros", "ones", "full", "empty", "rand", "randn")) | frozenset(
    f"aten.new_{kind}" for kind in ("zeros", "ones", "full", "empty")
)
"""Operations that take of their argument nothing but its shape."""

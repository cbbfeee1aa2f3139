"""Label injection, visibility, the two equal attention paths, and the interface of the ICL stage."""

import dataclasses
import inspect
import math

import pytest
import torch
from torch import Tensor

from model.attention import Norm, attention_weights
from model.icl_transformer import AttentionPath, ContextView, ICLBlock, ICLConfig, ICLTransformer, Visibility
from model.label_injection import LabelEncoder, LabelInjection, LabelKind
from model.specimens import distance, redraw
from tools.failure import ExitCode, Failure

N, M, WIDTH, CLASSES = 6, 4, 16, 5
CONFIG = ICLConfig(width=WIDTH, num_blocks=3, num_heads=2, max_classes=CLASSES)
PRECISIONS = [(torch.float32, 1e-5), (torch.float64, 1e-10)]


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _transformer(kind: LabelKind = LabelKind.CLASSIFICATION, *, dtype: torch.dtype = torch.float64) -> ICLTransformer:
    transformer = ICLTransformer(kind, CONFIG)
    redraw(transformer)
    return transformer.to(dtype)


def _inputs(kind: LabelKind = LabelKind.CLASSIFICATION, *, tables: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Context rows, context labels, query rows."""
    labels = _random(tables, N, seed=3)
    if kind is LabelKind.CLASSIFICATION:
        labels = torch.arange(tables * N).view(tables, N) % 3
    return _random(tables, N, WIDTH, seed=1), labels, _random(tables, M, WIDTH, seed=2)


def _view(
    bias: Tensor | None, *, mask: Tensor | None = None, path: AttentionPath = AttentionPath.REFERENCE
) -> ContextView:
    count = torch.tensor([N]) if mask is None else mask.sum(1)
    return ContextView(num_context=N, bias=bias, count=count, path=path)


def test_the_interface_is_the_course_s() -> None:
    """5.8: the exact signature; no query label."""
    names = list(inspect.signature(ICLTransformer.forward).parameters)
    course = ["self", "context_rows", "context_labels", "query_rows", "context_mask", "query_mask"]
    assert names[: len(course)] == course
    parameters = inspect.signature(ICLTransformer.forward).parameters
    assert all(parameters[name].default is None for name in names[4:])
    assert {parameters[name].kind for name in names[6:]} == {inspect.Parameter.KEYWORD_ONLY}
    assert not any("query" in name and "label" in name for name in names)


def test_labels_are_added_to_context_rows_and_the_unknown_label_to_query_rows() -> None:
    """5.2: z_context = rows + LabelEncoder(y), z_query = rows + unknown label, concatenated; 5.3: roles."""
    injection = LabelInjection(LabelKind.CLASSIFICATION, width=WIDTH, max_classes=CLASSES).double()
    redraw(injection)
    context, labels, queries = _inputs()
    z = injection(context, labels, queries)
    assert z.shape == (2, N + M, WIDTH)
    assert distance(z[:, :N], context + injection.encoder.classes.weight[labels] + injection.context_role) < 1e-14
    assert distance(z[:, N:], queries + injection.unknown_label + injection.query_role) < 1e-14


def test_the_class_embedding_starts_orthogonal_and_the_unknown_label_is_none_of_its_rows() -> None:
    """5.3: orthogonally initialised class embedding; the unknown label is its own embedding."""
    injection = LabelInjection(LabelKind.CLASSIFICATION, width=WIDTH, max_classes=CLASSES)
    classes = injection.encoder.classes.weight
    gram = classes @ classes.T
    assert distance(gram / gram[0, 0], torch.eye(CLASSES)) < 1e-5
    assert "unknown_label" in dict(injection.named_parameters())
    assert all(distance(row, injection.unknown_label) > 1e-3 for row in classes)


def test_continuous_labels_pass_through_a_small_network() -> None:
    """5.3: continuous MLP for regression: near targets are near, far targets finite."""
    encoder = LabelEncoder(LabelKind.REGRESSION, width=WIDTH, max_classes=CLASSES).double()
    codes = encoder(torch.tensor([[0.5, 0.5 + 1e-6, -0.5, 1e9]], dtype=torch.float64))[0]
    assert codes.shape == (4, WIDTH)
    assert distance(codes[0], codes[1]) < 1e-4 < distance(codes[0], codes[2])
    assert codes.isfinite().all()


def test_visibility_of_three_context_and_two_query_rows_cell_by_cell() -> None:
    """5.5: the toy 3+2 matrix; true minus infinity."""
    bias = Visibility()(torch.ones(1, 3, dtype=torch.bool), 2)
    assert bias.shape == (1, 1, 5, 5)
    expected = [
        [1, 1, 1, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 0, 0],
    ]
    for row in range(5):
        for column in range(5):
            wanted = 0.0 if expected[row][column] else -torch.inf
            assert float(bias[0, 0, row, column]) == wanted, (row, column)


def test_visibility_hides_padded_context_rows() -> None:
    """5.7: invalid rows are removed on the key side."""
    bias = Visibility()(torch.tensor([[True, False, True]]), 1)
    assert (bias[0, 0] == 0).int().tolist() == [[1, 0, 1, 0]] * 4


def test_the_mask_that_reaches_attention_is_the_printed_one() -> None:
    """5.6: what the blocks of the reference path receive is `Visibility`'s own tensor, of four blocks."""
    transformer = _transformer()
    transformer.path = AttentionPath.REFERENCE
    printed, received = [], []
    transformer.visibility.register_forward_hook(lambda _module, _args, output: printed.append(output))
    for block in transformer.blocks:
        block.register_forward_pre_hook(
            lambda _module, _args, kwargs: received.append(kwargs["view"].bias), with_kwargs=True
        )
    transformer(*_inputs())
    assert len(printed) == 1
    assert len(received) == CONFIG.num_blocks
    assert all(bias is printed[0] for bias in received)
    visible = (printed[0][0, 0] == 0).int()
    blocks = [visible[:N, :N], visible[:N, N:], visible[N:, :N], visible[N:, N:]]
    assert [(int(part.min()), int(part.max())) for part in blocks] == [(1, 1), (0, 0), (1, 1), (0, 0)]


def test_forbidden_keys_have_weight_exactly_zero_in_every_block() -> None:
    """5.6: weights [B, H, T, T] of the computation that produces the output, padded rows included."""
    transformer = _transformer()
    context, labels, queries = _inputs()
    mask = torch.ones(2, N, dtype=torch.bool)
    mask[1, 4:] = False
    z, bias = transformer.injection(context, labels, queries), transformer.visibility(mask, M)
    view = _view(bias, mask=mask)
    forbidden = (bias != 0).expand(-1, CONFIG.num_heads, -1, -1)
    for block in transformer.blocks:
        weights = block.weights(z, view=view)
        assert (weights[forbidden] == 0).all()
        assert (weights[~forbidden] > 0).all()
        assert distance(weights.sum(-1), torch.ones(2, CONFIG.num_heads, N + M)) < 1e-12
        z = block(z, view=view)


def test_the_drawn_weights_are_those_that_the_block_uses() -> None:
    """5.6: recomputing the block's output from `weights` gives the block's output."""
    block = _transformer().blocks[0]
    z, view = _random(2, N + M, WIDTH), _view(Visibility()(torch.ones(2, N, dtype=torch.bool), M))
    _, value = block.attention.keys_values(block.norm_attention(z))
    read = (block.weights(z, view=view) @ value).transpose(1, 2).flatten(-2)
    after = z + block.attention.output(read)
    after = after + block.feed_forward(block.norm_feed(after))
    assert distance(after, block(z, view=view)) < 1e-12


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", list(LabelKind))
def test_reference_and_fast_paths_agree(kind: LabelKind, padded: bool, dtype: torch.dtype, tolerance: float) -> None:
    """5.5: one attention over the printed [T, T] mask equals attention to the context rows alone."""
    transformer = _transformer(kind, dtype=dtype)
    context, labels, queries = (x.to(dtype) if x.is_floating_point() else x for x in _inputs(kind))
    masks: tuple[Tensor | None, Tensor | None] = (None, None)
    if padded:
        masks = torch.arange(N) < torch.tensor([[N], [3]]), torch.arange(M) < torch.tensor([[2], [M]])
    outputs = {}
    for path in AttentionPath:
        transformer.path = path
        outputs[path] = torch.cat(transformer(context, labels, queries, *masks), dim=1)
    real = torch.ones(2, N + M, dtype=torch.bool) if not padded else torch.cat(masks, dim=1)
    difference = distance(outputs[AttentionPath.FAST][real], outputs[AttentionPath.REFERENCE][real])
    assert difference < tolerance
    assert float(outputs[AttentionPath.FAST].detach().abs().mean()) > 0.1


@pytest.mark.parametrize("opened", ["query_to_query", "context_to_query", "causal", "padding"])
def test_the_agreement_of_paths_notices_a_wrong_mask(opened: str) -> None:
    """5.5: control of the test above: each wrong mask in the reference path parts it from the fast one."""

    class Wrong(Visibility):
        def forward(self, context_mask: Tensor, num_query: int) -> Tensor:
            bias = super().forward(context_mask, num_query).clone()
            if opened == "query_to_query":
                bias[:, :, N:, N:] = 0
            elif opened == "context_to_query":
                bias[:, :, :N, N:] = 0
            elif opened == "padding":
                bias[:, :, :, :N] = 0
            else:
                bias = bias + torch.full(bias.shape[-2:], -torch.inf).triu(1)
            return bias

    transformer = _transformer()
    mask = torch.arange(N) < torch.tensor([[N], [3]])
    fast = torch.cat(transformer(*_inputs(), mask), dim=1)
    transformer.path = AttentionPath.REFERENCE
    assert distance(torch.cat(transformer(*_inputs(), mask), dim=1), fast) < 1e-10
    transformer.visibility = Wrong()
    assert distance(torch.cat(transformer(*_inputs(), mask), dim=1), fast) > 1e-3


@pytest.mark.parametrize("path", [AttentionPath.REFERENCE, AttentionPath.FAST])
def test_row_zero_of_context_and_of_query_are_both_present(path: AttentionPath) -> None:
    """5.4: h_context = h[:, :N] and h_query = h[:, N:], 0-based."""
    transformer = _transformer()
    transformer.path = path
    captured = []
    transformer.norm.register_forward_hook(lambda _module, _args, output: captured.append(output))
    context, labels, queries = _inputs()
    h_context, h_query = transformer(context, labels, queries)
    assert h_context.shape == (2, N, WIDTH)
    assert h_query.shape == (2, M, WIDTH)
    assert torch.equal(h_context[:, 0], captured[0][:, 0])
    assert torch.equal(h_context[:, N - 1], captured[0][:, N - 1])
    assert torch.equal(h_query[:, 0], captured[0][:, N])
    assert torch.equal(h_query[:, M - 1], captured[0][:, N + M - 1])
    for rows, output in ((context, 0), (queries, 1)):
        changed = rows.clone()
        changed[:, 0].neg_()
        parts = (changed, labels, queries) if output == 0 else (context, labels, changed)
        moved = (transformer(*parts)[output] - (h_context, h_query)[output]).detach().abs().amax(-1)
        assert float(moved[:, 0].min()) > 1e-3


def test_a_query_sees_the_context_and_no_other_query() -> None:
    """5.5: C→C and Q→C open, C→Q and Q→Q closed, measured on outputs; never a causal mask."""
    transformer = _transformer()
    context, labels, queries = _inputs()
    base = torch.cat(transformer(context, labels, queries), dim=1)
    for row in range(N + M):
        changed_context, changed_queries = context.clone(), queries.clone()
        (changed_context[:, row] if row < N else changed_queries[:, row - N]).neg_()
        changed = torch.cat(transformer(changed_context, labels, changed_queries), dim=1)
        moved = ((changed - base).detach().abs().amax((0, 2)) > 1e-9).nonzero()[:, 0].tolist()
        assert moved == (list(range(N + M)) if row < N else [row])


def test_queries_may_come_in_any_batches() -> None:
    """5.9: one query at a time equals all at once."""
    transformer = _transformer()
    context, labels, queries = _inputs()
    together = transformer(context, labels, queries)[1]
    alone = torch.cat([transformer(context, labels, queries[:, m : m + 1])[1] for m in range(M)], dim=1)
    assert distance(alone, together) < 1e-12


def test_context_order_does_not_matter() -> None:
    """1.4: context rows permuted with their labels leave queries unchanged to rounding."""
    transformer = _transformer()
    context, labels, queries = _inputs()
    order = torch.tensor([5, 2, 0, 4, 1, 3])
    before, after = transformer(context, labels, queries), transformer(context[:, order], labels[:, order], queries)
    assert distance(after[1], before[1]) < 1e-12
    assert distance(after[0], before[0][:, order]) < 1e-12


@pytest.mark.parametrize("path", list(AttentionPath))
def test_a_padded_batch_equals_each_table_alone(path: AttentionPath) -> None:
    """5.7: whatever stands in the padding; a table without a real query is no matter."""
    transformer = _transformer()
    transformer.path = path
    context, labels, queries = _inputs(tables=3)
    rows, counts = (N, 3, 1), (M, 2, 0)
    context_mask = torch.arange(N) < torch.tensor(rows)[:, None]
    query_mask = torch.arange(M) < torch.tensor(counts)[:, None]
    context = torch.where(context_mask[..., None], context, 1e3)
    h_context, h_query = transformer(context, labels, queries, context_mask, query_mask)
    for table, (n, m) in enumerate(zip(rows[:2], counts[:2], strict=True)):
        alone = transformer(context[[table], :n], labels[[table], :n], queries[[table], :m])
        assert distance(h_context[[table], :n], alone[0]) < 1e-12
        assert distance(h_query[[table], :m], alone[1]) < 1e-12
    assert (h_query[~query_mask] == 0).all()
    assert h_context.isfinite().all()


@pytest.mark.parametrize("norm", list(Norm))
@pytest.mark.parametrize(("decay", "number", "share"), [(1.0, 3, 1.0), (0.5, 1, 0.5), (0.5, 3, 0.125)])
def test_blocks_normalise_before_each_branch_and_add_to_the_stream(
    norm: Norm, decay: float, number: int, share: float
) -> None:
    """1.3: pre-norm residual blocks: z + attention(norm(z)), then + feed_forward(norm(·)), each times decay^number."""
    block = ICLBlock(ICLConfig(width=WIDTH, num_heads=2, norm=norm, residual_decay=decay), number=number).double()
    redraw(block)
    z = _random(1, N + M, WIDTH)
    normed = block.norm_attention(z)
    view = _view(None, path=AttentionPath.FAST)
    after = z + share * block.attention(normed, normed[:, :N], view=view)
    after = after + share * block.feed_forward(block.norm_feed(after))
    assert distance(block(z, view=view), after) < 1e-13


def test_every_block_of_the_stage_knows_its_number() -> None:
    blocks = ICLTransformer(LabelKind.CLASSIFICATION, dataclasses.replace(CONFIG, residual_decay=0.5)).blocks
    assert [block.share for block in blocks] == [0.5 ** (number + 1) for number in range(len(blocks))]


@pytest.mark.parametrize("decay", [0.0, -0.5, 1.01, math.nan])
def test_a_residual_decay_that_is_none_is_refused_by_name(decay: float) -> None:
    with pytest.raises(Failure, match=f"icl.residual_decay is {decay}: give more than 0") as refusal:
        ICLConfig(residual_decay=decay)
    assert refusal.value.code is ExitCode.BAD_FLAG


def test_a_fresh_stage_passes_rows_through() -> None:
    """1.3: at initialisation every block is the identity, so only the final norm acts."""
    transformer = ICLTransformer(LabelKind.CLASSIFICATION, CONFIG)
    context, labels, queries = _inputs()
    z = transformer.injection(context.float(), labels, queries.float())
    hidden = torch.cat(transformer(context.float(), labels, queries.float()), dim=1)
    assert distance(hidden, transformer.norm(z)) < 1e-6


def test_prediction_changes_no_parameter_and_stores_nothing() -> None:
    """5.1: the memory is the episode's visible context, never a permanent table."""
    transformer = _transformer()
    before = {name: value.clone() for name, value in transformer.state_dict().items()}
    first = transformer(*_inputs())[1]
    transformer(*(_random(2, N, WIDTH, seed=9), _inputs()[1], _inputs()[2]))
    assert torch.equal(transformer(*_inputs())[1], first)
    assert all(torch.equal(value, before[name]) for name, value in transformer.state_dict().items())
    changed = (_inputs()[1] + 1) % 3
    assert distance(transformer(_inputs()[0], changed, _inputs()[2])[1], first) > 1e-3


def test_weights_of_a_block_are_plain_attention_weights() -> None:
    """1.1: no hidden temperature."""
    block = _transformer().blocks[1]
    z = _random(1, N + M, WIDTH)
    bias = Visibility()(torch.ones(1, N, dtype=torch.bool), M)
    normed = block.norm_attention(z)
    key, query = block.attention.keys_values(normed)[0], block.attention.query(normed)
    first_head = attention_weights(query[0, :, :8], key[0, 0], bias=bias[0, 0])
    assert distance(block.weights(z, view=_view(bias))[0, 0], first_head) < 1e-14

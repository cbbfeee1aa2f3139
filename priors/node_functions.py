"""What a node of a graph may do with its parents: eight functions, each evaluated for many nodes of many tasks at once.

All start from K projections z = W x + b of the I inputs (the components of the parents) and end in D outputs:

- linear: y = z;
- quadratic: y = V z², a quadratic form of low rank, with a linear part (from b);
- product: y = z z', each factor a sum over its own half of the parents;
- MLP: y = V activation(z), with tanh, ReLU and |.| units;
- tree: two oblivious trees that ask whether single inputs exceed thresholds; y is the sum of two leaves;
- discretise: the nearest of some centres decides, and each centre has its own value;
- periodic: y = sin(z) + slope z, one direction and D phases;
- waves: y = V cos(z), random Fourier features of a Gaussian process (Rahimi and Recht, NIPS 2007) whose kernel is a
  Gaussian or, where directions differ in length, long-tailed in frequency.
"""

import dataclasses
import enum
import math
from collections.abc import Callable
from typing import Self

import torch

from priors.draws import Draws, below
from tools.failure import BadInput, ExitCode

_UNITS = 8  # of an MLP, and centres of a discretiser
_WAVES = 16
_RANK = 4
_TREES, _DEPTH = 2, 4


class NodeFunction(enum.StrEnum):
    """How a node follows from its parents."""

    LINEAR = "linear"
    QUADRATIC = "quadratic"
    PRODUCT = "product"
    MLP = "mlp"
    TREE = "tree"
    DISCRETISE = "discretise"
    PERIODIC = "periodic"
    WAVES = "waves"


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeFunctionConfig:
    """How often each node function is used, in any unit; tasks have preferences of their own around these."""

    linear: float = 2.0
    """Weight of linear nodes."""
    quadratic: float = 0.7
    """Weight of quadratic forms."""
    product: float = 0.8
    """Weight of products of two sums."""
    mlp: float = 2.0
    """Weight of one hidden layer."""
    tree: float = 1.5
    """Weight of oblivious trees."""
    discretise: float = 0.8
    """Weight of nodes with a few values."""
    periodic: float = 0.4
    """Weight of sine waves."""
    waves: float = 1.0
    """Weight of Gaussian processes."""
    favour: float = 1.5
    """Standard deviation, at most, of a task's preferences (log weights): at 0 all tasks mix functions alike."""

    @property
    def weights(self) -> tuple[float, ...]:
        """In the order of `NodeFunction`."""
        return tuple(getattr(self, function.value) for function in NodeFunction)


def check_functions(config: NodeFunctionConfig) -> None:
    """Refuses weights that no function can be drawn by.

    Raises:
        BadInput: BAD_FLAG, naming the weights and what is possible.
    """
    if min(config.weights) < 0 or not 0 < sum(config.weights) < math.inf:
        raise BadInput(
            ExitCode.BAD_FLAG,
            f"the weights {config.weights} of the node functions are impossible: give none below 0 and one above",
        )


def draw_functions(draws: Draws, config: NodeFunctionConfig, *, tasks: torch.Tensor, count: int) -> torch.Tensor:
    """[M] int64 positions in `NodeFunction` for nodes of the tasks [M] in 0 … count − 1.

    Raises:
        BadInput: BAD_FLAG, the weights are impossible.
    """
    check_functions(config)
    base = draws.tensor(config.weights, dtype=torch.float32).log()
    spread = draws.uniform((count, 1), high=config.favour)
    palette = base + spread * draws.normal((count, len(base)))
    return (palette[tasks] + draws.gumbel((len(tasks), len(base)))).argmax(-1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeParameters:
    """Of n nodes with the same function.

    Args:
        inward: [n, K, I], weights of the inputs.
        offset: [n, K, 1].
        outward: [n, D, L], what is done with the K results (weights, or values of leaves and centres).
    """

    inward: torch.Tensor
    offset: torch.Tensor
    outward: torch.Tensor

    def between(self, start: int, stop: int, *, inputs: int) -> Self:
        """Those of the nodes start … stop − 1, of which only the first inputs count."""
        return type(self)(
            inward=self.inward[start:stop, :, :inputs],
            offset=self.offset[start:stop],
            outward=self.outward[start:stop],
        )


def draw_parameters(draws: Draws, function: NodeFunction, *, used: torch.Tensor, components: int) -> NodeParameters:
    """Draws the parameters of n nodes.

    Args:
        draws: the random source.
        function: what the nodes do.
        used: [n, I] bool, which inputs count; the I inputs are the `components` of one parent after those of another.
        components: D, of every node.
    """
    importance = draws.normal(used.shape).mul_(draws.uniform((len(used), 1))).exp_() * used
    return _MAKERS[function](draws, importance, components)


def evaluate(function: NodeFunction, parameters: NodeParameters, *, inputs: torch.Tensor) -> torch.Tensor:
    """[n, D, R] out of inputs [n, I, R]; of no particular mean or scale."""
    z = torch.baddbmm(parameters.offset, parameters.inward, inputs)
    return _HEADS[function](z, parameters.outward)


def _directions(draws: Draws, importance: torch.Tensor, *, number: int) -> torch.Tensor:
    """[n, K, I] random directions of length 1."""
    count, inputs = importance.shape
    return torch.nn.functional.normalize(draws.normal((count, number, inputs)) * importance.unsqueeze(1), dim=-1)


def _outward(draws: Draws, *, count: int, components: int, number: int) -> torch.Tensor:
    return draws.normal((count, components, number)) * number**-0.5


def _make_linear(draws: Draws, importance: torch.Tensor, components: int) -> NodeParameters:
    inward = _directions(draws, importance, number=components)
    offset = draws.full((len(inward), components, 1), 0.0)
    return NodeParameters(inward=inward, offset=offset, outward=offset)


def _make_quadratic(draws: Draws, importance: torch.Tensor, components: int) -> NodeParameters:
    count = len(importance)
    inward = _directions(draws, importance, number=_RANK)
    shift = draws.normal((count, _RANK, 1))
    outward = _outward(draws, count=count, components=components, number=_RANK)
    return NodeParameters(inward=inward, offset=shift, outward=outward)


def _make_product(draws: Draws, importance: torch.Tensor, components: int) -> NodeParameters:
    """The two factors share the parents out; both listen to a parent that is the only one."""
    count, inputs = importance.shape
    single = ~(importance[:, components:] > 0).any(-1, keepdim=True)
    side = draws.arange(inputs) // components % 2
    factors = [importance * ((side == half) | single) for half in (0, 1)]
    inward = torch.cat([_directions(draws, factor, number=components) for factor in factors], dim=1)
    shifted = draws.happens((count, 1, 1), share=0.7) | single.unsqueeze(-1)
    offset = 0.5 * draws.normal((count, 2 * components, 1)) * shifted
    return NodeParameters(inward=inward, offset=offset, outward=offset)


def _make_mlp(draws: Draws, importance: torch.Tensor, components: int) -> NodeParameters:
    count = len(importance)
    gain = draws.log_uniform((count, 1, 1), low=0.5, high=4.0)
    outward = _outward(draws, count=count, components=components, number=_UNITS)
    style = draws.integers((count, 1, 1), low=0, high=2)  # smooth, bent, or both kinds of units
    smooth = draws.arange(_UNITS) < _UNITS // 2
    outward = outward * ((style == 2) | (smooth == (style == 0)))
    inward = _directions(draws, importance, number=_UNITS) * gain
    return NodeParameters(inward=inward, offset=draws.normal((count, _UNITS, 1)) * gain * 0.7, outward=outward)


def _make_tree(draws: Draws, importance: torch.Tensor, components: int) -> NodeParameters:
    """Question q of a node asks a component of its parent q modulo the number of parents, so that all are asked."""
    count, inputs = importance.shape
    questions = _TREES * _DEPTH
    used = (importance > 0).view(count, inputs // components, components)
    parents = used.any(-1).sum(-1, keepdim=True)
    component = (draws.uniform((count, questions)) * used.any(1).sum(-1, keepdim=True)).long()
    question = draws.arange(questions)
    order = question % _DEPTH * _TREES + question // _DEPTH  # the trees take turns
    asked = order % parents.clamp(min=1) * components + component
    inward = torch.nn.functional.one_hot(asked, inputs).float()
    depth = draws.integers((count, 1), low=1, high=_DEPTH).maximum(-(-parents // _TREES))
    silent = question % _DEPTH >= depth
    threshold = (0.7 * draws.normal((count, questions))).masked_fill(silent, math.inf)
    outward = draws.normal((count, components, _TREES * 2**_DEPTH))
    return NodeParameters(inward=inward, offset=-threshold.unsqueeze(-1), outward=outward)


def _make_discretise(draws: Draws, importance: torch.Tensor, components: int) -> NodeParameters:
    """The nearest centre c maximises c·x − |c|²/2, in the metric that the importance of the inputs gives."""
    count, inputs = importance.shape
    centres = draws.normal((count, _UNITS, inputs))
    inward = centres * importance.unsqueeze(1)
    offset = (inward * centres).sum(-1, keepdim=True) * -0.5
    levels = draws.integers((count,), low=2, high=_UNITS)
    offset = offset.masked_fill(~below(levels, size=_UNITS).unsqueeze(-1), -math.inf)
    outward = draws.normal((count, components, _UNITS))
    return NodeParameters(inward=inward, offset=offset, outward=outward)


def _make_periodic(draws: Draws, importance: torch.Tensor, components: int) -> NodeParameters:
    count = len(importance)
    rate = draws.log_uniform((count, 1, 1), low=1.5, high=6.0)
    inward = (_directions(draws, importance, number=1) * rate).expand(-1, components, -1)
    slope = draws.uniform((count, components, 1), low=-1.0) * draws.happens((count, 1, 1), share=0.5) / rate
    phase = draws.uniform((count, components, 1), high=2 * math.pi)
    return NodeParameters(inward=inward, offset=phase, outward=slope)


def _make_waves(draws: Draws, importance: torch.Tensor, components: int) -> NodeParameters:
    count = len(importance)
    rate = draws.log_uniform((count, 1, 1), low=0.5, high=3.0).expand(-1, _WAVES, -1)
    scale = draws.normal((2, count, _WAVES, 1)).square().mean(0).clamp(min=0.05).sqrt()  # of Student's t
    rate = torch.where(draws.happens((count, 1, 1), share=0.5), rate / scale, rate)
    inward = _directions(draws, importance, number=_WAVES)
    length = draws.normal((2, count, _WAVES, 1)).square().mean(0).sqrt()
    phase = draws.uniform((count, _WAVES, 1), high=2 * math.pi)
    outward = _outward(draws, count=count, components=components, number=_WAVES)
    return NodeParameters(inward=inward * rate * length, offset=phase, outward=outward)


def _head_linear(z: torch.Tensor, outward: torch.Tensor) -> torch.Tensor:
    return z


def _head_quadratic(z: torch.Tensor, outward: torch.Tensor) -> torch.Tensor:
    return outward @ z.square_()


def _head_product(z: torch.Tensor, outward: torch.Tensor) -> torch.Tensor:
    one, other = z.chunk(2, dim=1)
    return one * other


def _head_mlp(z: torch.Tensor, outward: torch.Tensor) -> torch.Tensor:
    half = _UNITS // 2
    z[:, :half].tanh_()
    z[:, half:-1].relu_()
    z[:, -1:].abs_()
    return outward @ z


def _head_tree(z: torch.Tensor, outward: torch.Tensor) -> torch.Tensor:
    count, _, rows = z.shape
    answers = (z > 0).view(count, _TREES, _DEPTH, rows)
    leaf = answers[:, :, 0].long()
    for level in range(1, _DEPTH):
        leaf += answers[:, :, level].long() << level
    leaves = outward.unflatten(-1, (_TREES, 2**_DEPTH))
    return leaves.gather(3, leaf.unsqueeze(1).expand(-1, outward.shape[1], -1, -1)).sum(2)


def _head_discretise(z: torch.Tensor, outward: torch.Tensor) -> torch.Tensor:
    return outward @ (z == z.amax(1, keepdim=True)).to(z.dtype)


def _head_periodic(z: torch.Tensor, outward: torch.Tensor) -> torch.Tensor:
    return torch.addcmul(z.sin(), z, outward)


def _head_waves(z: torch.Tensor, outward: torch.Tensor) -> torch.Tensor:
    return outward @ z.cos_()


_MAKERS: dict[NodeFunction, Callable[[Draws, torch.Tensor, int], NodeParameters]] = {
    NodeFunction.LINEAR: _make_linear,
    NodeFunction.QUADRATIC: _make_quadratic,
    NodeFunction.PRODUCT: _make_product,
    NodeFunction.MLP: _make_mlp,
    NodeFunction.TREE: _make_tree,
    NodeFunction.DISCRETISE: _make_discretise,
    NodeFunction.PERIODIC: _make_periodic,
    NodeFunction.WAVES: _make_waves,
}
_HEADS: dict[NodeFunction, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    NodeFunction.LINEAR: _head_linear,
    NodeFunction.QUADRATIC: _head_quadratic,
    NodeFunction.PRODUCT: _head_product,
    NodeFunction.MLP: _head_mlp,
    NodeFunction.TREE: _head_tree,
    NodeFunction.DISCRETISE: _head_discretise,
    NodeFunction.PERIODIC: _head_periodic,
    NodeFunction.WAVES: _head_waves,
}

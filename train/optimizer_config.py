"""Optimizer and schedule as a config, and the learning rate that it gives each step."""

import dataclasses
import enum
import math

from tools.failure import ExitCode, Failure


class OptimizerKind(enum.StrEnum):
    """Optimizers by name."""

    MUON = "muon"  # Muon for the matrices of hidden layers, AdamW for the rest
    ADAMW = "adamw"  # AdamW for all (Loshchilov and Hutter 2019)
    SCHEDULE_FREE = "schedule_free"  # schedule-free AdamW for all, see `train.schedule_free`


class Decay(enum.StrEnum):
    """How the learning rate falls."""

    LINEAR = "linear"
    COSINE = "cosine"  # half a wave; with decay_share 1 it starts at once
    INVERSE_SQRT = "inverse_sqrt"  # √(warm-up / step) from the end of the warm-up on (Vaswani et al. 2017, section 5.3)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """Optimizer and schedule."""

    kind: OptimizerKind = OptimizerKind.MUON
    """Which optimizer."""
    matrix_lr: float = 1e-2
    """Peak learning rate of Muon, at AdamW's root mean square; the other optimizers do not read it."""
    vector_lr: float = 3e-3
    """Peak learning rate of AdamW: with Muon, of embeddings, norms, biases, tokens and output layers; else of all."""
    matrix_momentum: float = 0.95
    """Nesterov momentum of Muon."""
    betas: tuple[float, float] = (0.9, 0.99)
    """AdamW's averaging rates; the first is the interpolation of the schedule-free form."""
    weight_decay: float = 0.01
    """Decoupled decay of the matrices."""
    clip_norm: float = 1.0
    """Gradients are scaled down to this global norm (inf: never)."""
    warmup_share: float = 0.03
    """Share of the steps over which the rate rises linearly from 0."""
    decay: Decay = Decay.LINEAR
    """How it falls after that (schedule-free: not at all)."""
    decay_share: float = 0.5
    """Share of the steps, at the end, over which it falls towards `final_factor` (inverse_sqrt has no such share)."""
    final_factor: float = 0.02
    """Rate over the peak rate where the fall ends: one step after the last (inverse_sqrt falls to no such rate)."""

    def __post_init__(self) -> None:
        """Refuses rates and shares that mean nothing.

        Raises:
            Failure: BAD_FLAG, naming field and value.
        """
        for name in ("matrix_lr", "vector_lr"):
            _check(name, self, fits=0 < getattr(self, name) < math.inf, mend="give a number above 0")
        for name in ("warmup_share", "decay_share", "final_factor"):
            _check(name, self, fits=0 <= getattr(self, name) <= 1, mend="give a number from 0 to 1")
        _check("matrix_momentum", self, fits=0 <= self.matrix_momentum < 1, mend="give 0 or more, below 1")
        fits = all(0 <= beta < 1 for beta in self.betas)
        _check("betas", self, fits=fits, mend="give two numbers of 0 or more, below 1")
        _check("weight_decay", self, fits=0 <= self.weight_decay < math.inf, mend="give 0 or more")
        _check("clip_norm", self, fits=self.clip_norm > 0, mend="give a number above 0")


def _check(name: str, config: OptimizerConfig, *, fits: bool, mend: str) -> None:
    if not fits:
        raise Failure(ExitCode.BAD_FLAG, f"optimizer.{name} is {getattr(config, name)}: {mend}")


def base_optimizer() -> OptimizerConfig:
    """The optimizer of the preset `base`, with which a check of a GPU trains, too."""
    return OptimizerConfig(matrix_lr=5e-3, vector_lr=1e-3, decay_share=0.3, warmup_share=0.01)


def schedule(step: int, *, num_steps: int, config: OptimizerConfig) -> float:
    """Factor of the peak rates at `step` (0-based): linear warm-up, constant, decay (seed 1.5).

    The decay takes the last d = decay_share·num_steps steps. Linear, the k-th of them has f + (1 − f)·(d + 1 − k)/d
    with f the final factor, so the last step still has f + (1 − f)/d; f itself would come one step later. Cosine bends
    the same fall: the last step has f + (1 − f)·(1 − cos(π/d))/2.
    """
    warmup = max(1, round(config.warmup_share * num_steps))
    decay = max(1, round(config.decay_share * num_steps))
    rise = min(1.0, (step + 1) / warmup)
    if config.kind is OptimizerKind.SCHEDULE_FREE:
        return rise
    if config.decay is Decay.INVERSE_SQRT:
        return min(rise, math.sqrt(warmup / (step + 1)))
    fall = min(1.0, (num_steps - step) / decay)
    if config.decay is Decay.COSINE:
        fall = 0.5 - 0.5 * math.cos(math.pi * fall)
    return rise * (config.final_factor + (1 - config.final_factor) * fall)

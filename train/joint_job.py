"""One joint training from end to end: tasks, single-task weights, arms, audits, scores and files."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from eval import audits, comparison, results
from eval.icl_predictor import ICLPredictor
from eval.subject import Subject, subject_record, weights_digest
from model.checkpoint import load_checkpoint, save_checkpoint
from model.initialisation import initial_network
from model.label_injection import LabelKind
from model.network import Network, NetworkConfig
from model.shared_backbone import SharedBackbone, slender
from priors.batches import BatchPlan
from priors.generation import ShardConfig, checked_seed, ensure_shards, held_out_episodes, shard_folder
from priors.mixture import PriorConfig
from priors.task import Episode, TaskKind
from tools import config as configs
from tools import files, progress
from tools.failure import BadInput, ExitCode
from train.interference import Arms, loss_table, num_arm_steps, stage_table, task_table, train_arms
from train.joint import LossWeights
from train.joint_loop import ArmBudget, train_alone
from train.optimizer_config import OptimizerConfig, OptimizerKind
from train.step import compute_dtype
from train.validation import same_shape_batches

FORMAT_VERSION = 1
REPORTING_SEED = 3  # of held-out tasks on which no checkpoint is chosen
STATEMENT = "One backbone runs both tasks. How well it does either is what losses and scores say, beside `single`."
RULE = (
    "The backbone is that of the {0} network; label encoders, the embedding of an unknown label and the head of each "
    "task are its own network's. The {0} network starts exactly where it was, the other one on a foreign backbone."
)
_NUM_SETS = 3


def _slender() -> NetworkConfig:
    return slender(LabelKind.CLASSIFICATION)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointConfig:
    """What a joint training's result depends on, beside given single-task weights."""

    seed: int = 1
    """Of initialisation, tasks and order; one that a given run did not have draws tasks that it has not seen."""
    num_steps: int = 100
    """Joint steps, and further steps of every single-task baseline."""
    num_single_steps: int = 100
    """Steps that make the single-task weights where no run gives them."""
    batch_size: int = 16
    """Tasks of each kind in a step; even."""
    weights: LossWeights = LossWeights()
    """Of the two losses."""
    backbone: LabelKind = LabelKind.CLASSIFICATION
    """Whose backbone the joint network starts from."""
    optimizer: OptimizerConfig = OptimizerConfig(matrix_lr=3e-3, vector_lr=1e-3)
    """Of every arm; its rates are lower than those that make the single-task weights."""
    single_optimizer: OptimizerConfig = OptimizerConfig()
    """Of what makes the single-task weights where no run gives them."""
    network: NetworkConfig = dataclasses.field(default_factory=_slender)
    """Sizes of both networks where no run gives them; the kind is set for each."""
    shards: ShardConfig = ShardConfig(prior=PriorConfig(min_rows=64, max_rows=128, min_features=2, max_features=12))
    """The tasks; the kind is set for each network."""
    num_held_out_tasks: int = 96
    """Held-out tasks of each kind that every arm is compared on."""

    def shards_of(self, kind: LabelKind) -> ShardConfig:
        """The tasks of one network."""
        prior = dataclasses.replace(self.shards.prior, kind=TaskKind(kind.value))
        return dataclasses.replace(self.shards, prior=prior)


def checked(config: JointConfig) -> JointConfig:
    """Returns the config if a training of it can begin.

    Raises:
        BadInput: BAD_FLAG, naming the flag, its value and what it may be.
    """
    least = {"num-steps": 1, "num-single-steps": 1, "batch-size": 2, "num-held-out-tasks": _NUM_SETS}
    for name, bound in least.items():
        value = getattr(config, name.replace("-", "_"))
        if value < bound:
            raise BadInput(ExitCode.BAD_FLAG, f"--{name} {value} is too small: give {bound} or more")
    size, group = config.batch_size, config.shards.group_size
    if size % 2 or group % size:
        mend = f"give an even number that divides --shards.group-size {group}"
        raise BadInput(ExitCode.BAD_FLAG, f"--batch-size {size} does not fit: {mend}")
    for name in ("optimizer", "single_optimizer"):
        if getattr(config, name).kind is OptimizerKind.SCHEDULE_FREE:
            flag = f"--{name.replace('_', '-')}.kind"
            others = " or ".join(kind for kind in OptimizerKind if kind is not OptimizerKind.SCHEDULE_FREE)
            what = f"{flag} {OptimizerKind.SCHEDULE_FREE} trains no joint network"
            raise BadInput(ExitCode.BAD_FLAG, f"{what}: give {others}")
    checked_seed(config.seed)
    return config


def run_joint(
    config: JointConfig, singles: Mapping[LabelKind, Network] | None, *, shards_root: pathlib.Path, out: pathlib.Path
) -> dict[str, Any]:
    """Trains every arm and writes checkpoints, metrics.jsonl, audit.json, joint.json and seconds.json below `out`.

    Args:
        config: checked.
        singles: single-task networks of equal sizes; None makes them here first, on tasks of their own.
        shards_root: where the training tasks lie, or are made.
        out: a folder that nobody reads before this returns.

    Returns:
        The content of joint.json.
    """
    own_steps = 0 if singles else config.num_single_steps
    plans = {kind: _plan(config, kind, root=shards_root, num_steps=own_steps + config.num_steps) for kind in LabelKind}
    metrics = _Metrics(out / "metrics.jsonl")
    singles = singles or _make_singles(config, plans, metrics)
    budget = ArmBudget(num_steps=config.num_steps, first_batch=own_steps, optimizer=config.optimizer)
    with metrics.shown("joint and baselines", total=num_arm_steps(config.num_steps)):
        arms = train_arms(
            singles, plans, budget=budget, weights=config.weights, backbone=config.backbone, record=metrics.record
        )
    held_out = {
        kind: held_out_episodes(config.shards_of(kind).prior, seed=REPORTING_SEED, count=config.num_held_out_tasks)
        for kind in LabelKind
    }
    networks = {kind: arms.joint.network(kind).eval() for kind in LabelKind}
    saved = {kind: _save(network, out / kind.value, step=config.num_steps) for kind, network in networks.items()}
    batches = {kind: same_shape_batches(episodes) for kind, episodes in held_out.items()}
    record = {
        "format_version": FORMAT_VERSION,
        "statement": STATEMENT,
        "start": {
            "rule": RULE.format(config.backbone.value),
            "single_weights_sha256": {kind.value: weights_digest(singles[kind]) for kind in LabelKind},
        },
        "config": configs.to_json(config),
        "dtype": str(compute_dtype(torch.device("cpu"))).removeprefix("torch."),
        "parameters": parameter_table(arms.joint),
        "tasks": task_table(arms.records, networks, weights=config.weights),
        "losses": loss_table(arms, singles, held_out=batches),
        "scores": {kind.value: _scores(arms, kind, held_out[kind]) for kind in LabelKind},
        "checkpoints": {kind.value: facts for kind, facts in saved.items()},
        "stages": stage_table(arms.records),
        "num_skipped": sum(step["train/skipped"] for step in arms.records),
    }
    files.write_json(out / "seconds.json", arms.seconds)
    files.write_json(out / "joint.json", record)
    return record


def parameter_table(joint: SharedBackbone) -> dict[str, Any]:
    """How many parameters the joint and each single-task network have; what is shared is counted once (seed 1.7)."""
    counts = joint.counts()
    return {
        "joint": counts.joint,
        "shared": counts.shared,
        "single": {kind.value: counts.single[kind] for kind in LabelKind},
        "excess": {kind.value: counts.excess(kind) for kind in LabelKind},
        "within_five_percent": all(counts.excess(kind) <= 0.05 for kind in LabelKind),
    }


class _Metrics:
    """Writes every step's record and shows how far the work is."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path, self._done = path, 0
        self._meter: Callable[[int, str], None] | None = None
        path.parent.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def shown(self, title: str, *, total: int) -> Iterator[None]:
        self._done = 0
        with progress.meter(title, total=total, unit="steps") as self._meter:
            yield

    def record(self, figures: dict[str, Any]) -> None:
        files.append_json_line(self._path, figures)
        self._done += 1
        self._meter(self._done, f"{figures['arm']} loss {figures['train/loss']:.3f}")


def _plan(config: JointConfig, kind: LabelKind, *, root: pathlib.Path, num_steps: int) -> BatchPlan:
    shards, num_tasks = config.shards_of(kind), num_steps * config.batch_size
    folder = shard_folder(root, shards, seed=config.seed, num_tasks=num_tasks)
    with progress.meter(f"{kind} tasks", total=shards.rounded(num_tasks), unit="tasks") as meter:
        found = ensure_shards(shards, out=folder, num_tasks=num_tasks, seed=config.seed, report=meter)
    return BatchPlan(found, batch_size=config.batch_size, seed=config.seed)


def _make_singles(
    config: JointConfig, plans: Mapping[LabelKind, BatchPlan], metrics: _Metrics
) -> dict[LabelKind, Network]:
    budget = ArmBudget(
        num_steps=config.num_single_steps,
        first_batch=0,
        optimizer=config.single_optimizer,
        flag="--single-optimizer",
    )
    made = {}
    with metrics.shown("single-task networks", total=len(LabelKind) * config.num_single_steps):
        for kind in LabelKind:
            network = initial_network(dataclasses.replace(config.network, kind=kind), seed=config.seed)
            arm = f"before/{kind}"
            train_alone(network, plans[kind], budget=budget, record=lambda f, a=arm: metrics.record({"arm": a, **f}))
            made[kind] = network
    return made


def _save(network: Network, folder: pathlib.Path, *, step: int) -> dict[str, Any]:
    """Writes an ordinary checkpoint and its audits; says what its scores may be called."""
    loaded = load_checkpoint(save_checkpoint(folder / "checkpoints", step=step, network=network))
    verdict = audits.audit_network(loaded.network(), weights_sha256=loaded.weights_sha256)
    files.write_json(folder / "audit.json", verdict)
    subject = subject_record(Subject(network=network), weights_sha256=loaded.weights_sha256)
    status = results.status_of(verdict, subject).value
    return {"step": step, "weights_sha256": loaded.weights_sha256, "status": status}


def _scores(arms: Arms, kind: LabelKind, episodes: list[Episode]) -> dict[str, Any]:
    """Scores of every arm on held-out tasks, a mean over three disjoint sets of them; times are left out."""
    networks = {"single": arms.single[kind], "joint": arms.joint.network(kind)}
    if arms.alone[kind] is not arms.single[kind]:
        networks["alone"] = arms.alone[kind]
    rows = comparison.compare(
        comparison.episode_sets(episodes, num_sets=_NUM_SETS),
        [ICLPredictor(name=name, network=network.eval(), num_estimators=1) for name, network in networks.items()],
        unit=comparison.Unit.CONTEXT_DEVIATION,
        title=f"{kind} scores",
    )
    return results.scores_tree([row for row in rows if row.metric != "seconds"])

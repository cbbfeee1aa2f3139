"""Trains both tasks on one backbone, from single-task weights, and measures how they interfere.

    bazel run //train:pretrain_jointly -- RUN                  # from the best checkpoints of a run folder
    bazel run //train:pretrain_jointly                         # makes single-task weights first: minutes on 2 cores
    bazel run //train:pretrain_jointly -- RUN --num-steps 400 --weights.regression 0.5

One backbone then runs both tasks; how well it does either is what the figures say, beside both single-task networks
that got the same further steps on the same batches.
"""

import dataclasses
import json
import os
import pathlib
import shutil
from typing import Annotated, Any

import torch
import tyro

from eval.checkpoints import find_checkpoints
from model.checkpoint import Checkpoint
from model.label_injection import LabelKind
from model.shared_backbone import check_agreement
from reports.interference import StageCosines, cosine_picture, stage_label
from tools import config as configs
from tools import files, paths
from tools.failure import ExitCode, Failure, interrupt_on_sigterm, run_program
from train.joint_job import JointConfig, checked, run_joint

_PROGRAM = "bazel run //train:pretrain_jointly --"


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointFlags:
    """Trains both tasks on one backbone, from single-task weights, with weighted losses, and measures interference.

    Writes ROOT/NAME: joint.json (parameters, losses and scores of every arm, cosines by stage), metrics.jsonl (every
    step), figures/cosines.svg, and an ordinary checkpoint of each task, which //eval:audit and the estimators read.
    The networks of RUN need equal sizes (a run of `//train:pretrain -- tiny` has them with
    --classification.network.cell.num-rounds 1). Stopped half-way it leaves nothing but the training tasks.
    """

    run: tyro.conf.Positional[pathlib.Path | None] = None
    """A run folder: its best checkpoint of each kind. Without one, single-task networks are trained here first."""
    root: pathlib.Path | None = None
    """Folder for the result and the training tasks; by default runs/ in the workspace."""
    name: str | None = None
    """Name of the result; by default joint- and the first characters of the config's digest."""
    joint: Annotated[JointConfig, tyro.conf.arg(name="")] = JointConfig()
    """What the result depends on."""


def main() -> None:
    """Entry point."""
    run_program(_main)


def _main(argv: list[str]) -> int:
    flags = configs.parse_flags(JointFlags, argv, program=_PROGRAM)
    config = checked(flags.joint)
    sources = None if flags.run is None else _sources(paths.user_path(flags.run))
    origin = {} if sources is None else {kind.value: found.weights_sha256 for kind, found in sources.items()}
    digest = configs.digest((config, origin))
    root = paths.default_root() if flags.root is None else paths.user_path(flags.root)
    folder = root / paths.checked_name(flags.name or f"joint-{digest[:8]}", what="--name")
    if folder.exists():
        _check_same(folder, digest)
        print(f"{folder} is complete: nothing to do")
        return 0
    paths.writable_folder(root, flag="--root")
    staged = root / f".{folder.name}.{os.getpid()}.tmp"
    interrupt_on_sigterm()
    torch.set_num_threads(1)  # sums do not depend on the number of cores
    try:
        singles = None if sources is None else {kind: found.network() for kind, found in sources.items()}
        record = run_joint(config, singles, shards_root=root, out=staged)
        _draw(staged, record)
        files.write_json(staged / "config.json", {"digest": digest, "config": configs.to_json(config), "from": origin})
        staged.rename(folder)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    _point_out(folder, record)
    return 0


def _sources(run: pathlib.Path) -> dict[LabelKind, Checkpoint]:
    """The checkpoints that the single-task weights come from.

    Raises:
        Failure: NOT_FOUND where a kind is missing; CONFIG_MISMATCH for sizes that cannot share a backbone.
    """
    found = {one.config.kind: one for one in find_checkpoints(run)}
    missing = [kind.value for kind in LabelKind if kind not in found]
    if missing:
        mend = "give a run folder of //train:pretrain, which trains both kinds"
        raise Failure(ExitCode.NOT_FOUND, f"{run} holds no {missing[0]} checkpoint: {mend}")
    check_agreement(found[LabelKind.CLASSIFICATION].config, found[LabelKind.REGRESSION].config)
    return found


def _check_same(folder: pathlib.Path, digest: str) -> None:
    try:
        there = str(json.loads((folder / "config.json").read_bytes())["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        there = ""
    if there != digest:
        what = f"{folder} is there already and is not the result of this command"
        raise Failure(ExitCode.CONFIG_MISMATCH, f"{what}: choose another --name, or delete that folder")


def _draw(folder: pathlib.Path, record: dict[str, Any]) -> None:
    """The picture, from the two files that anyone can read."""
    steps = [one for one in files.read_json_lines(folder / "metrics.jsonl") if one["arm"] == "joint"]
    steps = [step for step in steps if not step["train/skipped"]]
    stages = [
        StageCosines(
            label=stage_label(name),
            values=[step[f"cosine/{name}"] for step in steps],
            low=stage["cosine"]["low"],
            high=stage["cosine"]["high"],
            same_task=tuple(stage["half_cosine"][kind.value]["mean"] for kind in LabelKind),
        )
        for name, stage in record["stages"].items()
    ]
    picture = cosine_picture(stages, name="cosines")
    files.write_bytes(folder / "figures" / "cosines.svg", picture.standalone().encode())


def _point_out(folder: pathlib.Path, record: dict[str, Any]) -> None:
    """Says what was found, and where it is."""
    counts = record["parameters"]
    for kind in LabelKind:
        losses, excess = record["losses"][kind.value], counts["excess"][kind.value]
        means, gap = losses["mean"], losses["joint_minus_single"]
        print(
            f"{kind:>14}  held-out loss: single {means['single']:.4f}, joint {means['joint']:.4f} "
            f"(difference {gap['mean']:+.4f}, 95 % {gap['low']:+.4f} … {gap['high']:+.4f}); "
            f"parameters {excess:+.1%} over the single-task network; {record['checkpoints'][kind.value]['status']}"
        )
    for name, stage in record["stages"].items():
        cosine = stage["cosine"]
        text = f"cosine {cosine['mean']:+.3f} (95 % {cosine['low']:+.3f} … {cosine['high']:+.3f})"
        print(f"{stage_label(name):>14}  {text}")
    print(f"{'result':>14}  {folder / 'joint.json'}\n{'picture':>14}  {folder / 'figures' / 'cosines.svg'}")
    print(f"{'note':>14}  {record['statement']}")

"""For tests: the command line of a main job that takes seconds."""

import pathlib


def toy_flags(root: pathlib.Path, *, num_steps: int = 4, checkpoint_every: int = 2) -> list[str]:
    """Words of `//train:pretrain`: small networks, a few steps, little to score; a flag behind them overrules theirs.

    Args:
        root: of the run, which is named `small`.
        num_steps: of each model.
        checkpoint_every: steps between two checkpoints.
    """
    flags = ["tiny", "--root", str(root), "--name", "small"]
    flags += ["--data.num-tasks", "64", "--data.num-validation-tasks", "8"]
    flags += ["--data.shards.group-size", "8", "--data.shards.groups-per-part", "4"]
    flags += ["--scoring.num-seeds", "1", "--scoring.num-synthetic-tasks", "1", "--scoring.num-estimators", "1"]
    flags += ["--scoring.num-regret-tasks", "1", "--scoring.cost-seconds", "0"]
    for kind in ("classification", "regression"):
        flags += [f"--{kind}.loop.num-steps", str(num_steps), f"--{kind}.loop.batch-size", "8"]
        flags += [f"--{kind}.loop.checkpoint-every", str(checkpoint_every), f"--{kind}.loop.log-every", "1"]
        flags += [f"--{kind}.network.cell.width", "16", f"--{kind}.network.icl.width", "32"]
        flags += [f"--{kind}.network.icl.num-blocks", "1"]
    return flags

"""Writes the shards of a preset, or goes on where it was stopped.

Command: `bazel run //priors:generate -- PRESET --out DIR --num-tasks N --seed S --workers W [--kind regression]`
"""

from priors.generation import check_request, ensure_shards, shard_folder
from priors.presets import PRESETS, GenerateConfig
from tools import config as configs
from tools import paths, progress
from tools.failure import run_program

_EPILOGUE = """
flags that most people need:
  --kind regression   numbers to predict instead of classes
  --num-tasks N       tasks wanted; rounded up to whole files
  --workers W         processes, one core each (1)
  --seed S            other seeds make other tasks of the same prior (0)
  --out DIR           folder of the set (shards/SOURCE-TASKS under runs/)
The same command goes on where it was stopped.
"""


def main() -> None:
    """Runs the program."""
    run_program(_main)


def _main(argv: list[str]) -> None:
    config: GenerateConfig
    program = "bazel run //priors:generate --"
    _, config = configs.parse_preset(PRESETS, argv, program=program, default="tiny", epilogue=_EPILOGUE)
    size = {"seed": config.seed, "num_tasks": config.num_tasks}
    check_request(config.shards, workers=config.workers, **size)
    root = paths.default_root()
    out = paths.user_path(config.out) if config.out else shard_folder(root, config.shards, **size)
    with progress.meter("tasks", total=config.shards.rounded(config.num_tasks), unit="tasks") as report:
        shard_set = ensure_shards(config.shards, out=out, workers=config.workers, report=report, **size)
    megabytes = shard_set.num_bytes / 1e6
    print(f"{shard_set.num_tasks} {shard_set.kind} tasks, {megabytes:.1f} MB, digest {shard_set.digest[:16]}: {out}")

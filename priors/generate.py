"""Writes the shards of a preset, or goes on where it was stopped.

Command: `bazel run //priors:generate -- PRESET --out DIR --num-tasks N --seed S --workers W [--kind regression]`
Command: `bazel run //priors:generate -- --like MANIFEST.json --out DIR`: makes a set again from its manifest alone
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Generator, Sequence
from typing import Annotated

import tyro

from priors.generation import Order, Runner, check_range, check_request, make_range, make_set, run_here, shard_folder
from priors.presets import PRESETS, GenerateConfig
from priors.recipe import Recipe, read_manifest_of, recipe_of
from priors.shards import Entry, our_files, part_files
from tools import config as configs
from tools import paths, progress, ray_session, stores
from tools.failure import BadInput, ExitCode, Failure, run_program

_PROGRAM = "bazel run //priors:generate --"
_EPILOGUE = """
flags that most people need (the same command goes on where it was stopped):
  --kind regression       numbers to predict instead of classes
  --num-tasks N           tasks wanted; rounded up to whole files
  --workers W             processes, one core each (1)
  --seed S                other seeds make other tasks of the same prior (0)
  --out DIR               folder or URI of the set (shards/SOURCE-TASKS under runs/)
  --anew                  first remove the shards that lie there
  --cluster.address auto  the Ray cluster that this machine belongs to; by default this machine, without Ray
  --first-part A          only files from A on: a range of a set that several clusters make
  --like MANIFEST.json    without a preset: make that set again, and compare every file
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerationClusterConfig:
    """Where Ray runs."""

    address: str | None = None
    """"auto": the cluster that this machine belongs to; "local": a Ray instance on this machine; by default no Ray."""
    num_workers: int | None = None
    """Parts that are made at once, one core each; by default as many as the cluster has cores."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RangeConfig:
    """Which files are made, and by whom."""

    first_part: int | None = None
    """Make a range only: files from this one on, --num-tasks of them, without a manifest. Without it, the whole set."""
    anew: bool = False
    """First remove the shards that lie in --out, whatever config they are of; no other files."""
    cluster: GenerationClusterConfig = GenerationClusterConfig()
    """Where Ray runs; without an address this machine generates alone."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PresetRun:
    """A preset, and how it is run."""

    preset: Annotated[GenerateConfig, tyro.conf.arg(name="")] = GenerateConfig()
    """What is made, and where."""
    range: Annotated[RangeConfig, tyro.conf.arg(name="")] = RangeConfig()
    """Which files, and by whom."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RepeatedRun:
    """Makes a set again from its manifest alone, and compares the sha256 of every file with it."""

    like: str
    """MANIFEST.json of the set, or its folder; a path or a URI."""
    num_tasks: int | None = None
    """Tasks from the first file on; by default all."""
    workers: int = 1
    """Processes that generate; each uses one core."""
    out: str | None = None
    """Folder or URI of the new set; by default shards/SOURCE-TASKS under runs/."""
    range: Annotated[RangeConfig, tyro.conf.arg(name="")] = RangeConfig()
    """Which files, and by whom."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """A command line that was understood. Args: order, range, workers, num_bytes (about, of all parts of the order)."""

    order: Order
    range: RangeConfig
    workers: int
    num_bytes: int


def main() -> None:
    """Runs the program."""
    run_program(_main)


def _main(argv: list[str]) -> None:
    repeated = any(word.split("=")[0] == "--like" for word in argv)
    job = _repetition(argv) if repeated else _preset(argv)
    order, config = job.order, job.range
    _check(job)
    num_tasks = order.recipe.num_parts * order.recipe.config.tasks_per_part
    print(f"{num_tasks} tasks, about {_readable(job.num_bytes)}", flush=True)
    _check_room(job)
    with _runner(config.cluster, workers=job.workers) as run:
        with progress.meter("tasks", total=num_tasks, unit="tasks") as report:
            order = dataclasses.replace(order, run=run, report=report)
            text = _made_set(order) if config.first_part is None else _made_range(order)
    print(text)


def _preset(argv: list[str]) -> Job:
    """What a preset's command line orders."""
    presets = {name: _with_range(make) for name, make in PRESETS.items()}
    _, found = configs.parse_preset(presets, argv, program=_PROGRAM, default="tiny", epilogue=_EPILOGUE)
    preset, config = found.preset, found.range
    size = {"seed": preset.seed, "num_tasks": preset.num_tasks}
    check_request(preset.shards, workers=preset.workers, **size)
    out = preset.out or str(shard_folder(paths.default_root(), preset.shards, **size))
    recipe = Recipe(
        config=preset.shards,
        seed=preset.seed,
        num_parts=preset.shards.num_parts(preset.num_tasks),
        first_part=config.first_part or 0,
    )
    order = Order(recipe=recipe, out=stores.user_location(out), run=_nobody, anew=config.anew)
    return Job(order=order, range=config, workers=preset.workers, num_bytes=preset.num_bytes())


def _with_range(make: Callable[[], GenerateConfig]) -> Callable[[], PresetRun]:
    @functools.wraps(make)
    def with_range() -> PresetRun:
        return PresetRun(preset=make())

    return with_range


def _repetition(argv: list[str]) -> Job:
    """What a command line with --like orders."""
    found = configs.parse_flags(RepeatedRun, argv, program=_PROGRAM)
    config = found.range
    location = stores.user_location(found.like)
    manifest = read_manifest_of(location)
    named = f"--like {stores.without_secrets(found.like)}"
    whole = recipe_of(manifest, where=named)
    first = config.first_part or 0
    size, rest = whole.config.tasks_per_part, whole.num_parts - first
    num_tasks = found.num_tasks if found.num_tasks is not None else max(rest, 1) * size
    check_request(whole.config, num_tasks=num_tasks, seed=whole.seed, workers=found.workers)
    parts = whole.config.num_parts(num_tasks)
    if parts > rest:
        what = f"--first-part {first} with {num_tasks} tasks reaches beyond the {whole.num_parts} files of {named}"
        raise BadInput(ExitCode.BAD_FLAG, f"{what}: ask for fewer")
    recipe = dataclasses.replace(whole, first_part=first, num_parts=parts)
    folder = shard_folder(paths.default_root(), whole.config, seed=whole.seed, num_tasks=whole.num_parts * size)
    out = stores.user_location(found.out or str(folder))
    like = {entry["index"]: entry for entry in manifest["parts"]}
    order = Order(recipe=recipe, out=out, run=_nobody, like=like, anew=config.anew)
    num_bytes = sum(entry["bytes"] for index, entry in like.items() if index in recipe.indices)
    return Job(order=order, range=config, workers=found.workers, num_bytes=num_bytes)


def _check(job: Job) -> None:
    config, workers = job.range, job.workers
    if config.first_part is not None:
        if config.first_part < 0:
            raise BadInput(ExitCode.BAD_FLAG, f"--first-part {config.first_part} is too small: give 0 or more")
        check_range(job.order)
    if config.cluster.address is not None:
        ray_session.check_address(config.cluster.address)
        if workers != 1:
            mend = "with --cluster.address give --cluster.num-workers"
            raise BadInput(ExitCode.BAD_FLAG, f"--workers {workers} is of this machine alone: {mend}")


def _check_room(job: Job) -> None:
    """Refuses what the place has clearly no room for, less what lies there already."""
    recipe, store = job.order.recipe, stores.open_store(str(job.order.out))
    try:
        free, there = store.free(), set(our_files(store))
    except OSError:
        return  # whoever writes there will say what is wrong
    if free is None:
        return
    if job.order.anew:
        free += sum(store.size(name) or 0 for name in there)
        there = set()
    absent = sum(not there.issuperset(part_files(index)) for index in recipe.indices)
    needed = job.num_bytes * absent // recipe.num_parts
    if needed > free:
        what = f"--out {store} needs about {needed} bytes ({_readable(needed)}) and {free} are free"
        raise Failure(ExitCode.DISK_FULL, f"{what}: free space, give another place, or a smaller --num-tasks")


def _readable(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.1f} MB"


def _nobody(recipe: Recipe, store: stores.Store, *, indices: Sequence[int]) -> Generator[Entry, None, None]:
    """Stands for who makes the parts until Ray is connected."""
    raise NotImplementedError


def _runner(cluster: GenerationClusterConfig, *, workers: int) -> contextlib.AbstractContextManager[Runner]:
    """This machine's processes, or a Ray cluster: only then is ray imported."""
    if cluster.address is None:
        return contextlib.nullcontext(functools.partial(run_here, workers=workers))
    ray_session.export_settings()
    from priors.workers import connected

    return connected(cluster.address, num_workers=cluster.num_workers)


def _made_set(order: Order) -> str:
    shard_set = make_set(order)
    machines = sorted({entry["machine"] for entry in shard_set.manifest["parts"]})
    if len(machines) > 1:
        kinds = "; ".join(machines)
        progress.say(f"made on {len(machines)} kinds of machine ({kinds}): no single one makes these bytes again")
    size = f"{shard_set.num_tasks} {shard_set.kind} tasks, {shard_set.num_bytes / 1e6:.1f} MB"
    return f"{size}, digest {shard_set.digest[:16]}{_verdict(order)}: {stores.open_store(shard_set.folder)}"


def _made_range(order: Order) -> str:
    num_bytes, indices = make_range(order), order.recipe.indices
    tasks = order.recipe.num_parts * order.recipe.config.tasks_per_part
    made = f"files {indices[0]} to {indices[-1]} of a set, {tasks} tasks, {num_bytes / 1e6:.1f} MB"
    mend = "where all files lie together, the same command without --first-part and with all tasks completes the set"
    return f"{made}{_verdict(order)}: {stores.open_store(str(order.out))}\n{mend}"


def _verdict(order: Order) -> str:
    return ", every file as in --like" if order.like else ""

"""Generation on Ray: the only file of this package that imports ray. Tasks make index ranges of parts, nothing else.

A range is idempotent: whoever makes it, and however often, its files hold the same bytes. So Ray may start one again
whose process or node died. Our source goes to the workers as one zip, so no node needs the repository.
"""

import contextlib
import functools
import time
from collections.abc import Iterator, Sequence

import ray
from ray import exceptions

from priors import shards
from priors.generation import Runner, make_part
from priors.recipe import Recipe
from priors.shards import Entry
from tools import ray_connection, ray_session
from tools.failure import ExitCode, Failure
from tools.stores import Store

_MAX_RETRIES = 3
_RANGES_PER_WORKER = 8
_APPEARS_SECONDS = 60.0
_PACKAGES = ("tools", "priors")


@contextlib.contextmanager
def connected(address: str, *, num_workers: int | None = None) -> Iterator[Runner]:
    """Connects to Ray; gives what makes parts there.

    Args:
        address: "local" or "auto".
        num_workers: parts that are made at once, one core each; by default as many as the cluster has cores.

    Raises:
        BadInput: BAD_FLAG for an address or number that cannot be used; TOO_FEW_RESOURCES with both numbers.
        Failure: TOO_FEW_RESOURCES where there is no cluster.
    """
    with ray_connection.connection(address, packages=_PACKAGES):
        count = ray_session.num_workers(num_workers, cores=int(ray.cluster_resources().get("CPU", 0)))
        yield functools.partial(_run, num_workers=count)


def _run(recipe: Recipe, store: Store, *, indices: Sequence[int], num_workers: int) -> Iterator[Entry]:
    """Keeps `num_workers` ranges going; a range whose process dies is made again.

    Raises:
        Failure: what a worker refused; WORKER_FAILED for a range whose process died again and again, or a node that
            cannot work; NOT_WRITABLE for a folder that the nodes do not share.
    """
    length = max(1, len(indices) // (num_workers * _RANGES_PER_WORKER))
    ranges = [list(indices[start : start + length]) for start in range(0, len(indices), length)]
    waiting, going = iter(ranges), {}
    while True:
        while len(going) < num_workers and (chosen := next(waiting, None)) is not None:
            going[_make_range.remote(recipe, store.location, indices=chosen)] = chosen
        if not going:
            return
        done, _ = ray.wait(list(going))
        for handle in done:
            chosen = going.pop(handle)
            for entry in _result(handle, indices=chosen):
                _check_shared(store, entry)
                yield entry


def _result(handle: ray.ObjectRef, *, indices: list[int]) -> list[Entry]:
    try:
        return ray.get(handle)
    except exceptions.RayTaskError as error:
        if isinstance(error.cause, Failure):
            raise error.cause from None
        if isinstance(error.cause, ImportError):
            mend = "install the packages of requirements.lock on every node"
            raise Failure(
                ExitCode.WORKER_FAILED, f"a node of the cluster cannot work ({error.cause}): {mend}"
            ) from error
        raise
    except exceptions.RayError as error:
        reason = " ".join(str(error).split())[:200]
        what = f"making parts {indices[0]} to {indices[-1]} failed {_MAX_RETRIES + 1} times ({reason})"
        raise Failure(ExitCode.WORKER_FAILED, f"{what}: run the same command again to go on") from error


def _check_shared(store: Store, entry: Entry) -> None:
    """Refuses a folder in which a part that a worker wrote does not appear, however late a network file system is."""
    name, deadline = shards.part_files(entry["index"])[0], time.monotonic() + _APPEARS_SECONDS
    while store.size(name) != entry["bytes"]:
        if time.monotonic() > deadline:
            what = f"--out {store} is not shared with all nodes: {name}, which one of them wrote, is not here"
            raise Failure(ExitCode.NOT_WRITABLE, f"{what}; give a folder that all see, or a URI of an object store")
        time.sleep(0.5)


@ray.remote(num_cpus=1, max_retries=_MAX_RETRIES)
def _make_range(recipe: Recipe, location: str, *, indices: list[int]) -> list[Entry]:
    """Runs on a worker; parts of the range that an earlier try finished are made again, to the same bytes."""
    store = shards.as_store(location)
    return [make_part(recipe, store, index=index) for index in indices]

"""Starting Ray or joining it: what generation and training share. Whoever imports this file imports ray."""

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator, Sequence

import ray
from ray._private import ray_constants, services
from ray._private.runtime_env import packaging
from ray._raylet import GcsClient
from ray.experimental import internal_kv

from tools import progress, ray_session, source_archive, warden
from tools.failure import BadInput, ExitCode, Failure

_ANSWER_SECONDS = 4.0


@contextlib.contextmanager
def connection(address: str, *, packages: Sequence[str]) -> Iterator[None]:
    """Connects to Ray while the context lasts.

    A cluster's nodes get our source as one zip through `py_modules`; an instance of our own imports it from here.

    Args:
        address: "local" or "auto".
        packages: our packages that workers import.

    Raises:
        Failure: BAD_FLAG for an address that cannot be used; TOO_FEW_RESOURCES, within 10 seconds, where no cluster
            answers, or where this machine is too busy to start an instance.
    """
    ray_session.check_address(address)
    handler = signal.getsignal(signal.SIGTERM)
    logging.getLogger("ray").setLevel(logging.ERROR)
    uri = None if address == "local" else _shipped(found_address(), packages)
    with contextlib.ExitStack() as stack:
        if address == "local":
            stack.enter_context(warden.warden())
            stack.enter_context(_on_loopback())
            stack.enter_context(_without_dashboard())
        session = ray_session.init_arguments(address, packages=packages, archive_uri=uri)
        arguments = stack.enter_context(session)
        try:
            context = ray.init(**arguments)
        except (ConnectionError, RuntimeError, ValueError) as error:
            if address == "local":
                raise
            raise _no_cluster(" ".join(str(error).split())[:300]) from error
        except Exception as error:  # Ray raises nothing narrower
            if "timed out during startup" not in str(error):
                raise
            mend = "leave it a core and some memory, and run the same command again"
            raise Failure(ExitCode.TOO_FEW_RESOURCES, f"Ray did not start on this machine in time: {mend}") from error
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray puts its own in place, which aborts the process
        try:
            if address != "local":
                progress.say(f"joined the Ray cluster at {context.address_info['gcs_address']}")
            yield
        finally:
            ray.shutdown()


def found_address() -> str:
    """ "host:port" of the cluster that --cluster.address auto means, if something answers there.

    Raises:
        Failure: TOO_FEW_RESOURCES; BAD_FLAG for a RAY_ADDRESS that cannot be used.
    """
    try:
        found = services.canonicalize_bootstrap_address("auto")
    except ConnectionError as error:
        raise _no_cluster("none runs on this machine") from error
    except (OSError, ValueError) as error:
        raise BadInput(
            ExitCode.BAD_FLAG, f"RAY_ADDRESS is no address ({error}): give HOST:PORT, or unset it"
        ) from error
    if found is None:
        raise _no_cluster("RAY_ADDRESS names none")
    if not ray_session.answers(found, seconds=_ANSWER_SECONDS):
        raise _no_cluster(f"nothing answers at {found}")
    return found


@contextlib.contextmanager
def _on_loopback() -> Iterator[None]:
    """Keeps Ray off the network: it replaces 127.0.0.1 by the machine's address, unless it may build no cluster."""
    before, name = ray_constants.ENABLE_RAY_CLUSTER, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    set_before = os.environ.get(name)
    ray_constants.ENABLE_RAY_CLUSTER, os.environ[name] = False, "0"
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
        os.environ.pop(name)
        if set_before is not None:
            os.environ[name] = set_before


@contextlib.contextmanager
def _without_dashboard() -> Iterator[None]:
    """Keeps Ray from starting its dashboard, a small one even where none is asked for.

    Whatever its settings say, that one asks the network which cloud it is in (S3). Nothing of ours needs it.
    """
    before = services.start_api_server
    services.start_api_server = lambda *arguments, **options: (None, None)  # as where none could be started
    try:
        yield
    finally:
        services.start_api_server = before


def _no_cluster(what: str) -> Failure:
    mend = "start one with `ray start --head` and join it on every node, or leave out --cluster.address"
    return Failure(ExitCode.TOO_FEW_RESOURCES, f"--cluster.address auto found no Ray cluster here: {what}; {mend}")


def _shipped(gcs_address: str, packages: Sequence[str]) -> str:
    """Gives the cluster our source, if it does not have it yet; returns the zip's URI."""
    archive = source_archive.packed(packages)
    uri = archive.uri()
    errors: list[Exception] = []

    def upload() -> None:
        try:
            internal_kv._initialize_internal_kv(GcsClient(address=gcs_address))
            packaging.pin_runtime_env_uri(uri)  # until the job holds it
            packaging.upload_package_to_gcs(uri, archive.content)
        except Exception as error:
            errors.append(error)
        finally:
            internal_kv._internal_kv_reset()

    thread = threading.Thread(target=upload, daemon=True)  # a call to something that hangs cannot be cut off
    thread.start()
    thread.join(_ANSWER_SECONDS)
    if thread.is_alive():
        raise _no_cluster(f"{gcs_address} takes connections and does not answer")
    if errors:
        raise _no_cluster(f"{gcs_address}: {' '.join(str(errors[0]).split())[:300]}") from errors[0]
    return uri

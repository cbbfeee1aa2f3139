"""Processes that do not outlive who started them."""

import multiprocessing
import os
import signal
import threading
from multiprocessing import connection


def follow_parent() -> None:
    """Ends this process when its parent is gone, however the parent ended; the parent alone answers an interrupt.

    For the processes of `multiprocessing`: the initializer of a pool.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()

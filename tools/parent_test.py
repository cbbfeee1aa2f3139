"""Test of tools/parent.py."""

import multiprocessing
import os
import select
import signal
import time

from tools.parent import follow_parent


def _work(written: int) -> None:
    """Follows its parent, says who it is, and would go on for long."""
    follow_parent()
    os.write(written, str(os.getpid()).encode())
    time.sleep(60)


def test_a_process_ends_with_its_parent_and_leaves_interrupts_to_it() -> None:
    """D1: kill −9 of the parent."""
    read, written = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            multiprocessing.get_context("fork").Process(target=_work, args=(written,)).start()
            os.close(written)  # the pipe then ends with the child
            time.sleep(60)
        finally:
            os._exit(0)
    os.close(written)
    child = int(os.read(read, 20))
    os.kill(child, signal.SIGINT)
    assert not select.select([read], [], [], 0.2)[0]
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    assert select.select([read], [], [], 10)[0]

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

STUCK_LOG = """
import logging, threading, time
from prov_host.ending import exit_now
logging.basicConfig()
handler = logging.getLogger().handlers[0]
held = threading.Event()
def hold():
    with handler.lock:
        held.set()
        time.sleep(60)
threading.Thread(target=hold).start()
held.wait()
exit_now(3, "never said")
"""
BUSY_MAIN_THREAD = """
import logging, threading, time
from prov_host.ending import exit_now
logging.basicConfig()
threading.Timer(0.05, exit_now, (4, "the Lease is lost")).start()
time.sleep(60)
"""
HUNG_AT_THE_END = """
import threading, time
from prov_host.ending import exit_within
threading.Thread(target=time.sleep, args=(60,)).start()
exit_within(0.1, 0)
"""

NO_THREADS = """
import threading, time
from prov_host.ending import exit_within
def start(self):
    raise RuntimeError("can't start new thread")
threading.Thread.start = start
exit_within(0.1, 0)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        (STUCK_LOG, 3, ""),
        (BUSY_MAIN_THREAD, 4, "the Lease is lost"),
        (HUNG_AT_THE_END, 0, ""),
        (NO_THREADS, -signal.SIGALRM, ""),
    ],
    ids=["stuck log", "busy main thread", "a thread that hangs", "no thread to be had"],
)
def test_nothing_keeps_a_process_that_must_end(script: str, code: int, words: str) -> None:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20)
    assert done.returncode == code
    assert words in done.stderr
    assert time.monotonic() - began < 5

"""Executes shares.py in a thread of a child's child, which prints its number and waits for a line."""

import os
import runpy
import sys
import threading

if os.fork() or os.fork():
    os.wait()
else:
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    shares = os.path.join(os.path.dirname(__file__), "shares.py")
    threading.Thread(target=runpy.run_path, args=[shares]).start()

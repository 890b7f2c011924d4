# `crowd.py COUNT`: threads that live at the same time. Each calls getsid five times, waits for the others, and calls
# getpriority three times. None ends before all have made their calls.
import os
import sys
import threading

count = int(sys.argv[1])
threading.stack_size(65536)
ready, through = threading.Barrier(count), threading.Barrier(count)


def work():
    ready.wait()
    for _ in range(5):
        os.getsid(0)
    through.wait()
    for _ in range(3):
        os.getpriority(os.PRIO_PROCESS, 0)
    ready.wait()


threads = [threading.Thread(target=work) for _ in range(count)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()

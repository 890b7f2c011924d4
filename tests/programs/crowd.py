# So many threads that live at once, each with five calls of getsid and then, when all are through, three of
# getpriority; none ends before all have made theirs.
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

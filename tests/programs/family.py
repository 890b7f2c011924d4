"""A process with an ended child, an ended thread, and a child that has a child. Calls getpriority, then prints each
parent and child by their numbers: `family.py FOLDER`."""
import os, sys, threading, time

said = os.path.join(sys.argv[1], "grandchild")
read, write = os.pipe()


def child():
    grandchild = os.fork()
    if grandchild == 0:
        os.read(read, 1)
        os._exit(0)
    with open(said + ".new", "w") as file:
        file.write(str(grandchild))
    os.rename(said + ".new", said)
    os.read(read, 1)
    os.waitpid(grandchild, 0)
    os._exit(0)


ended = os.fork()
if ended == 0:
    os._exit(0)
os.waitpid(ended, 0)
thread = threading.Thread(target=lambda: None)
thread.start()
thread.join()
living = os.fork()
if living == 0:
    child()
while not os.path.exists(said):
    time.sleep(0.01)
os.getpriority(os.PRIO_PROCESS, 0)
rows = [(os.getppid(), os.getpid()), (os.getpid(), living), (living, int(open(said).read()))]
print("target set:")
for parent, process in sorted(rows):
    print(f"{parent} begat {process}")
os.write(write, b"xx")
os.waitpid(living, 0)

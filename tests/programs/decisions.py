# Operations that security modules decide about, each once, in the folder of the first argument.
import array
import ctypes
import fcntl
import mmap
import os
import resource
import socket
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
os.chdir(sys.argv[1])

file = open("file", "w+b")
file.write(b"x" * 5000)
file.flush()
fcntl.flock(file, fcntl.LOCK_EX)
fcntl.ioctl(file, 0x541B, array.array("i", [0]))
os.pread(file.fileno(), 1, 0)
mapped = mmap.mmap(file.fileno(), 4096)
where = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
assert libc.mprotect(ctypes.c_void_p(where), 4096, 1) == 0

os.stat("file")
os.chmod("file", 0o600)
os.chown("file", os.getuid(), os.getgid())
os.mkdir("made")
os.rename("file", "moved")
os.unlink("moved")
os.rmdir("made")

server, client = (socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(2))
server.bind("socket")
server.listen(3)
client.connect("socket")
accepted, _ = server.accept()
client.send(b"hello")
accepted.recv(100)
client.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)
socket.send_fds(client, [b"fd"], [file.fileno()])
socket.recv_fds(accepted, 10, 1)

os.nice(1)
libc.syscall(251, 1, 0, 2 << 13 | 4)
resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
os.kill(os.getpid(), 0)

child = os.fork()
if child == 0:
    libc.prctl(15, b"decided", 0, 0, 0)
    os._exit(0)
os.waitpid(child, 0)
child = os.fork()
if child == 0:
    os.execv("/bin/true", ["true"])
os.waitpid(child, 0)
# The kernel frees a task later.
time.sleep(0.5)

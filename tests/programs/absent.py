"""Calls openat with descriptor 77 and a path in a page that is not in memory: `absent.py FILE`, a file for the path."""

import ctypes
import mmap
import os
import sys

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]
with open(sys.argv[1], "wb") as file:
    file.write(b"/cold/number".ljust(mmap.PAGESIZE, b"\0"))
    file.flush()
    os.fsync(file.fileno())
fd = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
path = libc.mmap(None, mmap.PAGESIZE, mmap.PROT_READ, mmap.MAP_PRIVATE, fd, 0)
libc.openat(77, ctypes.c_void_p(path), os.O_RDONLY)

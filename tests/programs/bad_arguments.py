"""Makes system calls whose memory cannot be read: `bad_arguments.py SPILE`.

Each call of tests/syscalls.tsv that shows memory gets addresses without memory, of a page that nothing may read, of
the four bytes in front of it, and outside of the address space, and lengths of gigabytes. No such call has an effect:
the kernel cannot read the memory either. `argstr` must name each address, in less than 512 bytes. Prints the
number of calls by name whose addresses were shown, or the differences.
"""

import ctypes
import json
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
libc = ctypes.CDLL(None)
libc.syscall.restype = ctypes.c_long
libc.mmap.restype = ctypes.c_void_p
# No process, descriptor or choice.
NONE = 0x7FFFFF63
# Kinds of arguments that are shown by their memory, with the text for an address.
MEMORY = {
    "str": "{:#x}", "strings": "[{:#x}]", "buf": "{:#x}", "bytes": "{:#x}", "sockaddr": "{{...}}",
    "ts": "{:#x}", "tv": "{:#x}", "its": "{:#x}", "itv": "{:#x}", "struct": "{:#x}", "braced": "{{{:#x}}}",
}  # fmt: skip
# The kernel ends the first two with a signal; for the others a part of the arguments decides what is shown.
OTHERS = {"rt_sigreturn", "restart_syscall", "futex", "keyctl", "prctl", "ptrace", "quotactl", "sysfs"}
LENGTHS = (3 << 30, (1 << 64) - 1)
SCRIPT = 'probe syscall.* { if (pid() == target()) printf("%s (%s)\\n", name, argstr) }'


def rows():
    """Number, name and kinds of the calls that show memory."""
    for line in open(f"{ROOT}/tests/syscalls.tsv"):
        if line.startswith("#"):
            continue
        name, number, how, _, arguments = line.rstrip("\n").split("\t")
        kinds = [re.split(r"[=(:!]", spec)[0] for spec in arguments.split(" ") if spec]
        kinds = [kind for kind in kinds if kind not in ("text", "number", "return")]
        if how == "called" and name not in OTHERS and MEMORY.keys() & set(kinds):
            yield int(number), name, kinds


def work():
    """Makes the calls, and notes the texts that must be in the arguments of each one."""
    # PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS; the second page gets PROT_NONE.
    page = libc.mmap(ctypes.c_void_p(0), ctypes.c_long(8192), 3, 0x22, -1, ctypes.c_long(0))
    assert libc.mprotect(ctypes.c_void_p(page + 4096), ctypes.c_long(4096), 0) == 0
    # Two bytes of a family, and two more.
    end = page + 4092
    want = []
    for number, name, kinds in rows():
        for address in (page + 4096, end, 4096, (1 << 47) - 2, 1 << 62):
            for length in LENGTHS:
                # A call may have written there.
                ctypes.memset(end, ord("x"), 4)
                words = [address if kind in MEMORY or kind == "ptr" else length if kind in ("ulong", "uint") else NONE for kind in kinds]
                result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_ulong, words))
                texts = [MEMORY[kind].format(address) for kind in kinds if kind in MEMORY]
                if address == end:
                    texts = [text.replace("{...}", "{unknown sockaddr with sa=30840, salen=128}") for text in texts]
                want.append([name, f"{address:#x}", result, texts])
    json.dump(want, open("did", "w"))


def main():
    if sys.argv[1] == "work":
        return work()
    command = f"{sys.executable} {os.path.abspath(__file__)} work"
    args = [sys.argv[1], "-W", "-D", "MAXSKIPPED=1000000", "-e", SCRIPT, "-o", "saw", "-c", command]
    done = subprocess.run(args, text=True, capture_output=True, timeout=300)
    if done.returncode:
        return print(done.stdout, done.stderr)
    saw = {}
    for line in open("saw", errors="replace"):
        name, _, text = line.rstrip("\n").partition(" ")
        saw.setdefault(name, []).append(text)
    wrong, shown = [], {}
    want = json.load(open("did"))
    for name, address, result, texts in want:
        if result != -1:
            wrong.append(f"{name} with {address} succeeded")
        found = any(all(t in text for t in texts) for text in saw.get(name, ()))
        if found:
            shown[name] = shown.get(name, 0) + 1
        else:
            wrong.append(f"{name} with {address}: no {texts} in {saw.get(name, ())[-2:]}")
    if len(want) < 1200:
        wrong.append(f"only {len(want)} calls")
    wrong += [f"too long: {text}" for texts in saw.values() for text in texts if len(text) >= 512 + len("execve ()")]
    counts = [f"{name} {count}" for name, count in shown.items()]
    print("\n".join(wrong or [*counts, f"{sum(shown.values())} calls of {len(shown)} names as expected"]))


if __name__ == "__main__":
    main()

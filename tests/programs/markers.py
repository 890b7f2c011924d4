"""Tests the library's aliases for markers, and the numbers of cache events: `markers.py SPILE [caches]`.

Aliases of passes: stap.pass0 stap.pass1a stap.pass1b stap.pass2 stap.pass3 stap.pass4 stap.pass5 stap.pass6
stap.pass0.end stap.pass1.end stap.pass2.end stap.pass3.end stap.pass4.end stap.pass5.end stap.pass6.end.
The test compiles programs with these markers. The numbers of events are those of linux/perf_event.h.
"""

import os
import re
import subprocess
import sys

# Writes no bytecode files next to the sources.
sys.dont_write_bytecode = True

from families import show

# Marker, arguments, alias, and the alias's variables in the order of the arguments. Texts end in `:s`.
STAP = [
    *[(f"{p}__start", [7001], f"stap.{p}", "session") for p in ("pass0", "pass1a", "pass1b", "pass2", "pass3", "pass4", "pass5", "pass6")],
    *[(f"{p}__end", [7002], f"stap.{p}.end", "session") for p in ("pass0", "pass1", "pass2", "pass3", "pass4", "pass5", "pass6")],
    ("cache__clean", ["/cache"], "stap.cache_clean", "path:s"),
    ("cache__add__module", ["/from", "/to"], "stap.cache_add_mod", "source_path:s dest_path:s"),
    ("cache__add__source", ["/from2", "/to2"], "stap.cache_add_src", "source_path:s dest_path:s"),
    ("cache__add__nss", ["/from3", "/to3"], "stap.cache_add_nss", "source_path:s dest_path:s"),
    ("cache__get", ["/from4", "/module"], "stap.cache_get", "source_path:s module_path:s"),
    ("stap_system__start", ["make"], "stap.system", "command:s"),
    ("stap_system__spawn", [0, 7003], "stap.system.spawn", "ret pid"),
    ("stap_system__complete", [3], "stap.system.return", "ret"),
]
STAPRUN = [
    ("insert__module", ["/a.ko"], "staprun.insert_module", "path:s"),
    ("remove__module", ["a"], "staprun.remove_module", "name:s"),
    ("send__ctlmsg", [4, 7004, 12], "staprun.send_control_message", "type data len"),
]
PYTHON = [
    ("function__entry", ["a.py", "f", 12], "python.function.entry", "filename:s funcname:s lineno"),
    ("function__return", ["a.py", "f", 14], "python.function.return", "filename:s funcname:s lineno"),
]


def program(name, rows):
    calls = "".join(
        f'STAP_PROBE{len(args)}({name}, {mark}, {", ".join(repr(a).replace(chr(39), chr(34)) if isinstance(a, str) else f"{a}L" for a in args)});\n'
        for mark, args, *_ in rows
    )
    with open("m.c", "w") as f:
        f.write(f'#include "sdt.h"\nint main(void) {{\n{calls}return 0; }}\n')
    here = os.path.dirname(os.path.abspath(__file__))
    subprocess.run(["cc", "-I", f"{here}/../../include/spile", "-o", name, "m.c"], check=True)


def markers(spile):
    """What the session printed, and what it had to print."""
    saw, wanted = [], []
    env = dict(os.environ, PATH=os.getcwd() + ":" + os.environ["PATH"])
    for name, rows in (("stap", STAP), ("staprun", STAPRUN), ("python3", PYTHON)):
        program(name, rows)
        script, want = "", []
        for _, args, alias, variables in rows:
            names = variables.split()
            script += show(alias, variables, "1")
            # Paths are in quotes, and names in Python programs are not.
            values = [f'"{a}"' if isinstance(a, str) and name != "python3" else a for a in args]
            want.append(alias + " " + " ".join(f"{n.removesuffix(':s')}={v}" for n, v in zip(names, values)))
        done = subprocess.run([spile, "-w", "-e", script, "-c", f"./{name}"], env=env, text=True, capture_output=True, timeout=100)
        saw += (done.stdout + done.stderr).splitlines()
        wanted += want
    return saw, wanted


# perf_hw_cache_id, perf_hw_cache_op_id
CACHES = {"l1d": 0, "l1i": 1, "ll": 2, "dtlb": 3, "itlb": 4, "bpu": 5, "node": 6}
OPERATIONS = {"read": 0, "write": 1, "prefetch": 2}
NAMES = """
perf.hw_cache.l1d.read.access perf.hw_cache.l1d.read.miss perf.hw_cache.l1d.write.access perf.hw_cache.l1d.write.miss
perf.hw_cache.l1d.prefetch.access perf.hw_cache.l1d.prefetch.miss perf.hw_cache.l1i.read.access
perf.hw_cache.l1i.read.miss perf.hw_cache.l1i.prefetch.access perf.hw_cache.l1i.prefetch.miss
perf.hw_cache.ll.read.access perf.hw_cache.ll.read.miss perf.hw_cache.ll.write.access perf.hw_cache.ll.write.miss
perf.hw_cache.ll.prefetch.access perf.hw_cache.ll.prefetch.miss perf.hw_cache.dtlb.read.access
perf.hw_cache.dtlb.read.miss perf.hw_cache.dtlb.write.access perf.hw_cache.dtlb.write.miss
perf.hw_cache.dtlb.prefetch.access perf.hw_cache.dtlb.prefetch.miss perf.hw_cache.itlb.read.access
perf.hw_cache.itlb.read.miss perf.hw_cache.bpu.read.access perf.hw_cache.bpu.read.miss
perf.hw_cache.node.read.access perf.hw_cache.node.read.miss perf.hw_cache.node.write.access
perf.hw_cache.node.write.miss perf.hw_cache.ndoe.write.miss
"""


def caches(spile):
    """The numbers of the events, as spile says them and as the header does."""
    script = "".join(f"probe {name} {{ n++ }}\n" for name in NAMES.split()) + "global n probe end { println(n) }"
    done = subprocess.run([spile, "-p2", "-e", script], text=True, capture_output=True, timeout=100)
    numbers = {}
    for line in done.stdout.splitlines():
        found = re.search(r"perf\.type\(3\)\.config\((\w+)\).*(perf\.hw_cache[.\w]+)", line)
        if found:
            numbers[found[2]] = int(found[1], 0)
    saw, wanted = [], []
    for name in NAMES.split():
        _, _, cache, operation, result = name.split(".")
        number = CACHES["node" if cache == "ndoe" else cache] | OPERATIONS[operation] << 8 | (result == "miss") << 16
        saw.append(f"{name} {numbers.get(name, 0):#x}")
        wanted.append(f"{name} {number:#x}")
    return saw, wanted


if __name__ == "__main__":
    saw, wanted = (caches if sys.argv[2:] == ["caches"] else markers)(sys.argv[1])
    print("\n".join(saw))
    if saw != wanted:
        sys.exit("\n".join(["expected:", *wanted]))

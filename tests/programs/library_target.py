"""What kernel handlers say of a process, against what the process says: `library_target.py SPILE GROUP`.

The process (`library_target.py --target GROUP`) calls getppid with the addresses of two blocks of memory, and writes
what each expression has to give as it knows it: from its memory, its own calls, and /proc.
"""
import ctypes, os, resource, struct, subprocess, sys, threading, time

TEXT = b'he"llo\tworld\0'
LONG = b"y" * 1999 + b"\0"
NUMBERS = struct.pack("<qiIhHbB", -7, -123456, 4000000000, -321, 65000, -5, 250)
AT = dict(zip(("q", "i", "I", "h", "H", "b", "B"), (0, 8, 12, 16, 18, 20, 21)))
UTF16 = "aé€\U0001F600z\0".encode("utf-16-le")
UTF32 = "aé€\U0001F600z\0".encode("utf-32-le")
OFFSETS, BLOCK = {}, b""
for name, part in (("text", TEXT), ("long", LONG), ("numbers", NUMBERS), ("utf16", UTF16), ("utf32", UTF32)):
    BLOCK += b"\0" * (-len(BLOCK) % 8)
    OFFSETS[name] = len(BLOCK)
    BLOCK += part
BAD = 16


def memory():
    """user_string user_string_n user_string_nofault user_string_n_nofault user_string2 user_string_n2 user_string_warn
    user_string_n_warn user_string_quoted user_string_n_quoted user_string_utf16 user_string_utf32 user_string2_utf16
    user_string2_utf32 user_long user_ulong user_int user_short user_ushort user_char user_int8 user_uint8 user_int16
    user_uint16 user_int32 user_uint32 user_int64 user_uint64 user_long_warn user_ulong_warn user_int_warn user_short_warn
    user_ushort_warn user_char_warn user_long_error user_ulong_error user_int_error user_short_error user_ushort_error
    user_char_error user_int8_error user_uint8_error user_int16_error user_uint16_error user_int32_error
    user_uint32_error user_int64_error user_uint64_error kernel_or_user_string_quoted user_buffer_quoted
    user_buffer_quoted_error"""
    at = {name: f"(pointer_arg(1) + {offset})" for name, offset in OFFSETS.items()}
    text, quoted = TEXT[:-1].decode(), '"he\\"llo\\tworld"'
    t = at["text"]
    yield f"user_string({t})", text
    yield f'user_string({t}, "no")', text
    yield f'user_string({BAD}, "no")', "no"
    yield f"user_string({BAD})", "error: user string copy fault at 0x10"
    for n in (0, 3, 100):
        yield f"user_string_n({t}, {n})", text[:n]
        yield f'user_string_n({t}, {n}, "no")', text[:n]
        yield f'user_string_n2({t}, {n}, "no")', text[:n]
        yield f"user_string_n_nofault({t}, {n})", text[:n]
        yield f"user_string_n_warn({t}, {n})", text[:n]
    yield f'user_string_n({BAD}, 3, "no")', "no"
    yield f"user_string_nofault({t})", text
    yield f"user_string_nofault({BAD})", ""
    yield f"user_string_n_nofault({BAD}, 3)", ""
    yield f'user_string2({t}, "no")', text
    yield f'user_string2({BAD}, "no")', "no"
    yield f"user_string_warn({t})", text
    yield f"user_string_warn({BAD})", ""
    yield f'user_string_warn({BAD}, "w")', "w"
    yield f"user_string_n_warn({BAD}, 4)", ""
    yield f'user_string_n_warn({BAD}, 4, "w")', "w"
    yield f"user_string_quoted({t})", quoted
    yield f"user_string_quoted({BAD})", "0x10"
    yield "user_string_quoted(0)", "0x0"
    yield f"user_string_quoted({at['long']})", '"' + "y" * 506 + '"...'
    yield f"user_string_n_quoted({t}, 4)", '"he\\"l"'
    yield f"user_string_n_quoted({t}, 100, 10)", '"he\\"l"...'
    yield "user_string_n_quoted(0, 5)", "0x0"
    yield f"kernel_or_user_string_quoted({t})", quoted
    yield f"kernel_or_user_string_quoted({BAD})", "error: user string copy fault at 0x10"
    yield f"user_buffer_quoted({t}, 6, 100)", '"he\\"llo"'
    yield f"user_buffer_quoted_error({t}, 6, 100)", '"he\\"llo"'
    yield f"user_buffer_quoted({BAD}, 6, 100)", "0x10"
    yield f"user_buffer_quoted_error({BAD}, 6, 100)", "error: Unable to access user space data at 0x10"
    for bits, block in ((16, UTF16), (32, UTF32)):
        whole = block.decode(f"utf-{bits}-le")[:-1]
        a = at[f"utf{bits}"]
        yield f"user_string_utf{bits}({a})", whole
        yield f'user_string_utf{bits}({a}, "no")', whole
        yield f'user_string2_utf{bits}({a}, "no")', whole
        yield f'user_string_utf{bits}({BAD}, "no")', "no"
    kinds = (("long", "q"), ("ulong", "q"), ("int", "i"), ("short", "h"), ("ushort", "H"), ("char", "b"), ("int8", "b"),
             ("uint8", "B"), ("int16", "h"), ("uint16", "H"), ("int32", "i"), ("uint32", "I"), ("int64", "q"), ("uint64", "q"))
    for name, code in kinds:
        value = struct.unpack_from("<" + code, NUMBERS, AT[code])[0]
        suffixes = ["", "_error"] + (["_warn"] if name in ("long", "ulong", "int", "short", "ushort", "char") else [])
        for suffix in suffixes:
            yield f"user_{name}{suffix}({at['numbers']} + {AT[code]})", value
            if suffix != "_error":
                yield f"user_{name}{suffix}({BAD})", 0
        yield f"(user_{name}_error({BAD}) + 1)", "error: read fault at 0x10"


def kernel_memory():
    """kernel_string kernel_string2 kernel_string_n kernel_string_quoted kernel_string_utf16 kernel_string_utf32
    kernel_string2_utf16 kernel_string2_utf32 kernel_char kernel_short kernel_int kernel_long kernel_pointer
    kernel_buffer_quoted kernel_buffer_quoted_error atomic_read atomic_long_read d_name"""
    name = b"ab\x01"
    open("/proc/self/comm", "wb").write(name)
    at = '(&@task(task_current())->comm[0])'
    fault = "error: kernel string copy fault at 0x10"
    yield f"strlen(kernel_string({at}))", len(name)
    yield f'(kernel_string({at}) == "ab\\001")', 1
    yield f'(kernel_string({at}, "no") == "ab\\001")', 1
    yield f'kernel_string({BAD}, "no")', "no"
    yield f'kernel_string2({BAD}, "no")', "no"
    yield f"kernel_string({BAD})", fault
    for n in (0, 1, 2):
        yield f"kernel_string_n({at}, {n})", name[:n].decode()
    yield f"kernel_string_quoted({at})", '"ab\\001"'
    yield f"kernel_string_quoted({BAD})", "0x10"
    yield "kernel_string_quoted(0)", "0x0"
    yield f"kernel_buffer_quoted({at}, 4)", '"ab\\001\\000"'
    yield f"kernel_buffer_quoted({at}, 4, 20)", '"ab\\001\\000"'
    yield f"kernel_buffer_quoted_error({at}, 2, 20)", '"ab"'
    yield f"kernel_buffer_quoted({BAD}, 4)", "0x10"
    yield f"kernel_buffer_quoted_error({BAD}, 4, 20)", "error: Unable to access kernel space data at 0x10"
    memory = name + b"\0" * 5
    wide = chr(int.from_bytes(name + b"\0", "little"))
    two = (name + b"\0").decode("utf-16-le")
    yield f"kernel_string_utf32({at})", wide
    yield f'kernel_string_utf32({at}, "no")', wide
    yield f'kernel_string2_utf32({at}, "no")', wide
    yield f"kernel_string_utf16({at})", two
    yield f'kernel_string_utf16({at}, "no")', two
    yield f'kernel_string2_utf16({BAD}, "no")', "no"
    for kind, size in (("char", 1), ("short", 2), ("int", 4), ("long", 8), ("pointer", 8)):
        yield f"kernel_{kind}({at})", int.from_bytes(memory[:size], "little")
        yield f"(kernel_{kind}({BAD}) + 1)", "error: read fault at 0x10"
    for kind, size in (("char", 1), ("short", 2), ("int", 4)):
        # The two numbers of 32 bits that say of which pid the parent is: above 0, and -1 nowhere.
        yield f"kernel_{kind}(&@task(task_current())->pid)", int.from_bytes(struct.pack("<i", os.getpid())[:size], "little", signed=True)
    yield "atomic_read(&@task(task_current())->mm->mm_users->counter)", 1
    for line in open("/proc/self/status"):
        if line.startswith("VmPTE"):
            yield "atomic_long_read(&@task(task_current())->mm->pgtables_bytes->counter)", int(line.split()[1]) * 1024
    yield "d_name(@task(task_current())->mm->exe_file->f_path->dentry)", os.path.basename(os.readlink("/proc/self/exe"))


def stat(field):
    """Field n of /proc/self/stat, counted as in proc(5)."""
    return int(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[field - 3])


def context():
    """pid tid ppid pgrp sid uid euid gid egid execname pexecname cpu target is_myproc is_return user_mode cgroup_id
    ns_pid ns_tid ns_ppid ns_pgrp ns_sid ns_uid ns_euid ns_gid ns_egid task_pid task_tid task_ppid task_uid task_euid
    task_gid task_egid task_execname task_nice task_prio task_cpu task_state task_parent task_ns_pid task_ns_tid
    task_start_time task_exit_code probe_type pn pp ppfunc target_set_pid int_arg uint_arg long_arg ulong_arg longlong_arg
    ulonglong_arg pointer_arg s32_arg u32_arg s64_arg u64_arg cmdline_str current_syscall syscall_index task_current
    registers_valid stack_used stack_unused local_clock_ns local_clock_us local_clock_ms local_clock_s gettimeofday_s
    gettimeofday_ms gettimeofday_us gettimeofday_ns ktime_get_ns jiffies get_cycles"""
    me, thread = os.getpid(), threading.get_native_id()
    yield "pid()", me
    yield "ns_pid()", me
    yield "tid()", thread
    yield "ns_tid()", thread
    yield "ppid()", os.getppid()
    yield "ns_ppid()", os.getppid()
    yield "pgrp()", os.getpgrp()
    yield "ns_pgrp()", os.getpgrp()
    yield "sid()", os.getsid(0)
    yield "ns_sid()", os.getsid(0)
    for name in ("uid", "euid", "gid", "egid"):
        value = getattr(os, "get" + name)()
        yield f"{name}()", value
        yield f"ns_{name}()", value
        yield f"task_{name}(task_current())", value
    comm = open("/proc/self/comm").read()[:-1]
    yield "execname()", comm
    yield "task_execname(task_current())", comm
    yield "pexecname()", open(f"/proc/{os.getppid()}/comm").read()[:-1]
    yield "task_execname(task_parent(task_current()))", open(f"/proc/{os.getppid()}/comm").read()[:-1]
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    yield "cpu()", max(os.sched_getaffinity(0))
    yield "task_cpu(task_current())", stat(39)
    yield "target()", me
    yield "target_set_pid(pid())", 1
    yield "target_set_pid(1)", 0
    yield "is_myproc()", 1
    yield "is_return()", 0
    yield "user_mode()", 0
    yield "registers_valid()", 0
    yield "task_pid(task_current())", me
    yield "task_tid(task_current())", thread
    yield "task_ns_pid(task_current())", me
    yield "task_ns_tid(task_current())", thread
    yield "task_ppid(task_current())", os.getppid()
    yield "task_nice(task_current())", os.nice(3)
    yield "task_prio(task_current())", stat(18)
    yield "task_state(task_current())", 0
    yield "task_exit_code(task_current())", 0
    # Ticks of a hundredth of a second.
    yield "(task_start_time(tid()) / 10000000)", stat(22)
    yield "(task_start_time(1 << 23))", 0
    yield "probe_type()", "kernel_tracepoint"
    yield "pn()", "syscall.getppid"
    yield "pp()", "syscall.getppid"
    yield "ppfunc()", ""
    for name, size in (("int", 4), ("long", 8), ("longlong", 8), ("s32", 4), ("s64", 8)):
        yield f"{name}_arg(3)", -2
    for name, value in (("uint", 2 ** 32 - 2), ("u32", 2 ** 32 - 2), ("ulong", -2), ("ulonglong", -2), ("u64", -2), ("pointer", -2)):
        yield f"{name}_arg(3)", value
    first, *rest = open("/proc/self/cmdline").read()[:-1].split("\0")
    yield "cmdline_str()", " ".join([first, *(a or '""' for a in rest)])
    yield "current_syscall()", 110
    yield "syscall_index()", 110
    yield "(stack_used() + stack_unused())", 16384
    yield "(stack_used() > 100 && stack_unused() > 1000)", 1
    path = open("/proc/self/cgroup").read().split("::")[-1].strip()
    if os.path.isdir("/sys/fs/cgroup" + path) and os.path.exists("/sys/fs/cgroup/cgroup.procs"):
        yield "cgroup_id()", os.stat("/sys/fs/cgroup" + path).st_ino
    now, mono = time.time_ns(), time.monotonic_ns()
    # The call comes within a minute from now.
    for unit, ns in (("ns", 1), ("us", 1000), ("ms", 10 ** 6), ("s", 10 ** 9)):
        yield f"(gettimeofday_{unit}() >= {now // ns} && gettimeofday_{unit}() < {(now + 60 * 10 ** 9) // ns})", 1
        yield f"(local_clock_{unit}() >= {mono // ns} && local_clock_{unit}() < {(mono + 60 * 10 ** 9) // ns})", 1
    yield f"(ktime_get_ns() >= {mono} && ktime_get_ns() < {mono + 60 * 10 ** 9})", 1
    yield f"(get_cycles() >= {mono})", 1
    yield "(jiffies() > 0)", 1


GROUPS = {"memory": memory, "context": context, "kernel_memory": kernel_memory}
HANDLER = 8


def main():
    if sys.argv[1] == "--target":
        block = ctypes.create_string_buffer(BLOCK)
        bytes(block)  # All of it is in memory.
        checks = list(GROUPS[sys.argv[2]]())
        for expression, want in checks:
            os.write(2, f"{expression}={want}\036".encode())
        ctypes.CDLL(None).syscall(110, ctypes.c_void_p(ctypes.addressof(block)), 0, ctypes.c_long(-2))
        return
    spile, group = sys.argv[1:]
    options = [[]]
    wrong = 0
    # Expressions do not depend on the process; only numbers of times do, which stand in them.
    for option in options:
        expressions = [e for e, _ in GROUPS[group]()]
        lines = []
        for at in range(0, len(expressions), HANDLER):
            lines.append("probe syscall.getppid { if (pid() != target()) next")
            for i, e in enumerate(expressions[at:at + HANDLER], at):
                lines.append(f'try {{ printf("{i}=%s\\036", sprint({e})) }} catch (m) {{ printf("{i}=error: %s\\036", m) }}')
            lines.append("}")
        target = f"{sys.executable} {os.path.abspath(__file__)} --target {group} '' 'two words' '' ''"
        command = [spile, *option, "-w", "-DMAXACTION=100000", "-e", "\n".join(lines), "-c", target]
        done = subprocess.run(command, capture_output=True, timeout=250)
        got = dict(row.split("=", 1) for row in done.stdout.decode("utf-8", "replace").split("\036") if "=" in row)
        said = [row.split("\n")[-1] if row.startswith("WARNING") else row for row in done.stderr.decode().split("\036")]
        wants = [row.rpartition("=")[2] for row in said[:len(expressions)]]
        if len(wants) < len(expressions):
            sys.exit(done.stderr.decode())
        for i, (expression, want) in enumerate(zip(expressions, wants)):
            if got.get(str(i)) != want:
                wrong += 1
                print(f"{option}: {expression}: {got.get(str(i))!r}, not {want!r}")
    called = " ".join(expressions)
    forgotten = [name for name in GROUPS[group].__doc__.split() if name + "(" not in called]
    print(f"{group}: {len(expressions)} expressions, {wrong} wrong, forgotten: {forgotten}")


main()

"""Compares the results of library functions with those of Python: `library.py SPILE LOAD GROUP`.

A `begin` handler, which the interpreter runs, and a kernel handler print each expression of a group. The kernel
handler runs optimised and, so that no constant is folded, unoptimised. All must print the value that Python
computes, or `error: ` and the message.
"""
import errno, math, os, signal, struct, subprocess, sys, time

M = 1 << 64


def signed(x, bits=64):
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def swap(x, size):
    return signed(int.from_bytes((x & (1 << 8 * size) - 1).to_bytes(size, "little"), "big"))


def text(s):
    """A literal of the script language."""
    return '"' + "".join(
        chr(b) if 32 <= b < 127 and chr(b) not in '"\\' else "\\%03o" % b for b in s.encode("utf-8", "surrogateescape")
    ) + '"'


def fp(x):
    return signed(struct.unpack("<Q", struct.pack("<d", x))[0])


def network():
    for x in (0, 1, 0x1234, 0x12345678, 0x123456789ABCDEF0, -1, 0xFF00, 0x80):
        for n, size in (("s", 2), ("l", 4), ("ll", 8)):
            yield f"hton{n}({x})", swap(x, size)
            yield f"ntoh{n}({x})", swap(x, size)
    for ip in ("127.0.0.1", "255.255.255.255", "1.2.3.4"):
        import socket
        yield f"ip_ntop({struct.unpack('=I', socket.inet_aton(ip))[0]})", ip


def devices():
    for major, minor in ((8, 1), (259, 300), (4095, 1048575), (0, 5)):
        kernel = major << 20 | minor
        yield f"MAJOR({kernel})", major
        yield f"MINOR({kernel})", minor
        yield f"MKDEV({major}, {minor})", kernel
        # The device number of stat(2). The lower 32 bits of glibc's number are the same.
        yield f"usrdev2kerndev({os.makedev(major, minor) & 0xFFFFFFFF})", kernel
    for rw in (0, 1, 2, 3, 9):
        yield f"bio_rw_num({rw})", rw & 1
        yield f"bio_rw_str({rw})", "RW"[rw & 1]


def strings():
    for path in ("", "file", "/usr/lib/libc.so.6", "a/b", "//x//y.so"):
        yield f"basename({text(path)})", os.path.basename(path)
    samples = ["", "a", "hello world", "aXbXc", "tab\tnl\n\"q\"\\", "\x01\x7f", "x" * 300]
    for s in samples:
        b = s.encode()
        yield f"strlen({text(s)})", len(b)
        for start, n in ((0, 3), (1, 100), (-1, 2), (50, 1), (0, -1), (2, 0)):
            yield f"substr({text(s)}, {start}, {n})", s[start:start + n] if start >= 0 and n > 0 else ""
        for part in ("", "X", "lo w", "c", "zz"):
            yield f"isinstr({text(s)}, {text(part)})", int(part in s)
            yield f"strpos({text(s)}, {text(part)})", s.find(part)
            yield f'str_replace({text(s)}, {text(part)}, "<>")', s.replace(part, "<>") if part else s
        yield f"isdigit({text(s)})", 0
        yield f"stringat({text(s)}, {len(s)})", "error: Position out of bounds"
        yield f"stringat({text(s)}, -1)", "error: Position out of bounds"
    for i, c in enumerate("hello"):
        yield f'stringat("hello", {i})', ord(c)
    for d in "0123456789":
        yield f'isdigit("{d}x")', 1
    for base, digits in ((10, "123"), (16, "7fff"), (8, "0755"), (2, "1011"), (36, "ff")):
        yield f'strtol("{digits}", {base})', int(digits, base)
        yield f'strtol("-{digits}", {base})', -int(digits, base)
    yield 'strtol("0x1f", 0)', 31
    yield 'strtol("017", 0)', 15
    yield 'strtol("17rest", 10)', 17
    yield '(tokenize("one,two;;three", ",;") . "/" . tokenize(",;") . "/" . tokenize("", ",;") . "/" . tokenize(",;"))', "one/two/three/"


def octal(c):
    short = {7: "a", 8: "b", 12: "f", 10: "n", 13: "r", 9: "t", 11: "v", 34: '"', 92: "\\"}
    if 32 <= c < 127 and c not in (34, 92):
        return chr(c)
    return "\\" + (short[c] if c in short else "%03o" % c)


def character(c):
    """A character as spile escapes it: by its number, or in octal if it is a byte outside of UTF-8."""
    if c < 128 or 0xDC80 <= c <= 0xDCFF:
        return octal(c & 0xFF)
    return "\\u%04X" % c if c < 0x10000 else "\\U%08X" % c


def escaped(s, room=511, quoted=False):
    """The text, escaped: as many whole characters as fit; if `quoted`, in quotes, with ... after an incomplete text."""
    units = [character(ord(c)) for c in s]
    room = room if 0 < room <= 511 else 511
    if not quoted:
        out = ""
        for u in units:
            if len(out + u) > room:
                break
            out += u
        return out
    room = max(room, 5) - 2
    whole = "".join(units)
    if len(whole) <= room:
        return f'"{whole}"'
    out, room = "", room - 3
    for u in units:
        if len(out + u) > room:
            # No later character is taken, not even a shorter one.
            break
        out += u
    return f'"{out}"...'


def quotes():
    broken = b"(\xc3(\xff\xe0\x80\x80\xed\xa0\x80\xf4\x90\x80\x80\xc0\x80\xe2\x82\xf0\x9f\x98\xc3"
    samples = ("", "plain", 'tab\tnl\n"q"\\', "\x01\x7f\x1b", "abc\x01de", "aé€\U0001F600z", "é" * 90, "\U0010FFFF" * 60, "ab\n" * 160)
    for s in (*samples, broken.decode("utf-8", "surrogateescape"), "?\udc99\a\n\n\r\n", "x" * 300, "x" * 509 + "é"):
        yield f"text_str({text(s)})", escaped(s)
        if len("".join(character(ord(c)) for c in s)) <= 511:
            yield f'sprintf("%#s", {text(s)})', escaped(s)
        yield f"string_quoted({text(s)})", escaped(s, 512, True)
        for room in (0, -1, 1, 5, 6, 9, 10, 12, 15, 17) if len(s) < 50 else (509, 600):
            yield f"text_strn({text(s)}, {room}, 0)", escaped(s, room)
            yield f"text_strn({text(s)}, {room}, 1)", escaped(s, room, True)


def errors():
    for n, name in errno.errorcode.items():
        if n in (1, 2, 9, 11, 22, 35, 38, 40, 71, 95, 98, 110, 115, 131):
            # Python may know the number by a synonym.
            names = {a for a in dir(errno) if a[0] == "E" and getattr(errno, a) == n}
            kernel = {11: "EAGAIN", 35: "EDEADLK", 95: "EOPNOTSUPP"}.get(n, name)
            assert kernel in names
            yield f"errno_str({n})", kernel
            yield f"errno_str({-n})", kernel
            yield f"errno_p({n})", n
            yield f"errno_p({-n})", n
            yield f"return_str(1, {-n})", f"{-n} ({kernel})"
    for n in (0, 41, 58, 3333, -3333, -200, 200, -(1 << 63), 1 << 40):
        yield f"errno_str({n})", ""
        yield f"errno_p({n})", 0
        yield f"return_str(1, {n})", n
        yield f"return_str(2, {n})", "0x%x" % (n % M)
        yield f"return_str(3, {n})", "0%o" % (n % M)
    yield "errno_p(-512)", 0
    yield "return_str(3, 8)", "010"
    yield "return_str(2, 255)", "0xff"
    plain = {s.value: s.name[3:] for s in signal.Signals if s.value not in (29, 32, 34, 64) and s.value < 32}
    for n, name in plain.items():
        yield f"signal_str({n})", name
    yield "signal_str(29)", "IO/POLL"
    for n in (32, 33, 40, 63, 64):
        yield f"signal_str({n})", "RTMIN" + (f"+{n - 32}" if n > 32 else "")
    for n in (0, -1, 65):
        yield f"signal_str({n})", ""
    header = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"
    numbers = {0: "read", 39: "getpid", 231: "exit_group", 257: "openat"}
    if os.path.exists(header):
        for line in open(header):
            words = line.split()
            if len(words) == 3 and words[1].startswith("__NR_") and int(words[2]) % 9 == 0 and int(words[2]) < 400:
                numbers[int(words[2])] = words[1][5:]
    for n, name in numbers.items():
        yield f"syscall_name({n})", name
        yield f'syscall_num("{name}")', n
    for name in ("", "no such call"):
        yield f'syscall_num("{name}")', -1
    yield "syscall_name(9999)", ""
    yield "syscall_name(-1)", ""


def times():
    for ms in (0, 5, 999, 1000, 59999, 60000, 62003, 3600000, 123456789):
        shown = "%dm%d.%03ds" % (ms // 60000, ms // 1000 % 60, ms % 1000)
        yield f"msecs_to_string({ms})", shown
        yield f"cputime_to_msecs({ms * 1000000 + 999999})", ms
        yield f"cputime_to_usecs({ms * 1000000 + 999})", ms * 1000
        yield f"cputime_to_string({ms * 1000000})", shown
    yield "msecs_to_string(-5)", "0m0.-005s"
    for t in (0, 1, 86399, 951782400, 1709164800, 2147483647, -1, -86401, -2147483648, 4102444799 - (1 << 31)):
        shown = time.asctime(time.gmtime(t))
        yield f"ctime({t})", shown
        yield f"tz_ctime({t})", shown + " UTC"
    yield "ctime(2147483648)", "error: Time too far in the future to be converted"
    yield "ctime(-2147483649)", "error: Time too far in the past to be converted"
    yield "tz_gmtoff()", 0
    yield "tz_name()", "UTC"


def faults():
    bits = {0: 1, 1: 2, 3: 4, 4: 0x100, 5: 0x200, 6: 0x873}
    names = ("OOM", "SIGBUS", "MINOR", "MAJOR", "NOPAGE", "LOCKED", "ERROR")
    for i, name in enumerate(names):
        yield f"VM_FAULT_{name}", i
        for value in (0, 1, 2, 4, 0x10, 0x40, 0x100, 0x200, 0x400, 0x604, 3):
            yield f"vm_fault_contains({value}, VM_FAULT_{name})", int(value & bits[i] != 0 if i != 2 else value & 7 == 0)
    yield "vm_fault_contains(255, 7)", 0


def floats():
    values = [0.0, -0.0, 1.0, -2.5, 3.14, 1e-5, 123456.789, 2.0 ** 53, 0.5, 1e17, -7.75]
    for a in values:
        for b in (1.0, -2.0, 0.3):
            for name, result in (("add", a + b), ("sub", a - b), ("mul", a * b), ("div", a / b), ("rem", math.remainder(a, b))):
                yield f"fp_{name}({fp(a)}, {fp(b)})", fp(result)
            for name, result in (("eq", a == b), ("lt", a < b), ("le", a <= b)):
                yield f"fp_{name}({fp(a)}, {fp(b)})", int(result)
        if a >= 0:
            yield f"fp_sqrt({fp(a)})", fp(math.sqrt(a))
        yield f'string_to_fp("{a!r}")', fp(a)
        yield f"fp_to_string({fp(a)}, 0)", ("-" if math.copysign(1, a) < 0 else "") + str(int(abs(a)))
        single = struct.unpack("<I", struct.pack("<f", a))[0]
        yield f"fp32_to_fp64({single})", fp(struct.unpack("<f", struct.pack("<f", a))[0])
    for a in (2.5, -2.5, 3.5, 0.5, 7.75, -7.75, 4.0):
        nearest_away = math.copysign(math.floor(abs(a) + 0.5), a)
        for mode, result in ((0, round(a)), (1, int(a)), (2, math.floor(a)), (3, math.ceil(a)), (4, int(nearest_away))):
            yield f"fp_to_long({fp(a)}, {mode}, 0)", result
    for n in (0, 1, -1, 1 << 52, (1 << 53) + 1, (1 << 63) - 1, -(1 << 63)):
        yield f"long_to_fp({n})", fp(float(n))
    for a, digits, shown in (
        (2.71828, 5, "2.71828"), (-0.42172, 5, "-0.42172"), (9.996, 2, "10.00"), (2.7, 0, "2"), (0.125, 2, "0.13"),
        (1e20, 0, "100000000000000000e3"), (123e20, 0, "123000000000000000e5"), (math.inf, 3, "Infinity"), (-math.inf, 0, "-Infinity"),
        (math.nan, 2, "NaN"), (1 / 3, 10, "0.3333333333"),
    ):
        yield f"fp_to_string({fp(a)}, {digits})", shown
    for s in ("abc", "1.5x", "inf", "nan", " 1", "1 ", "0x10", "--1", "1e5.", "1,5"):
        yield f'string_to_fp("{s}")', "error: invalid format"
    for s in ("1e5", "-1.5E-3", "+7", ".5", "7.", "1e+2"):
        yield f'string_to_fp("{s}")', fp(float(s))


def other():
    yield "mem_page_size()", os.sysconf("SC_PAGESIZE")
    for n in (-5, 1048577, -(1 << 63)):
        yield f"randint({n})", "error: range too wide"
    yield "randint(0)", 0
    yield "randint(1)", 0
    yield "(randint(1048576) < 1048576)", 1
    for unit in ("ns", "us", "ms", "s"):
        yield f"cpu_clock_{unit}(999)", "error: cpu 999 is not online"
        yield f"cpu_clock_{unit}(-1)", "error: cpu -1 is not online"
        yield f"(cpu_clock_{unit}(0) > 0)", 1
    yield 'tz_ctime(0)', "Thu Jan  1 00:00:00 1970 UTC"
    yield "task_utime(0)", 0
    yield "task_stime(-1)", 0
    yield "task_start_time(1 << 30)", 0
    yield "stack_size()", 16384
    for address in (-1, -4096):
        yield f"symname({address})", hex(address & M - 1)
        yield f"symdata({address})", hex(address & M - 1)


def edges():
    # The limits of signed numbers of 64 bits.
    least, most = -(1 << 63), (1 << 63) - 1
    low, high = f"({least + 1} - 1)", str(most)
    for a, b in ((least, -1), (least, 1), (least, least), (most, least), (least, most), (7, -2), (-7, 2), (-7, -2)):
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        left, right = (low if n == least else f"({n})" for n in (a, b))
        yield f"({left} / {right})", signed(quotient)
        yield f"({left} % {right})", a - quotient * b
        yield f"({left} * {right})", signed(a * b)
        yield f"({left} + {right})", signed(a + b)
        yield f"({left} - {right})", signed(a - b)
    for op in "/%":
        for a in ("1", "0", low):
            yield f"({a} {op} strlen(\"\"))", "error: division by 0"
    yield f"(-{low})", least
    # The processor uses six bits of a shift count.
    for n in (0, 1, 63, 64, 65, -1, 127):
        yield f"(3 << {n})", signed(3 << (n & 63))
        yield f"({low} >> {n})", least >> (n & 63)
        yield f"({low} >>> {n})", signed((least & M - 1) >> (n & 63))
    for start in ("0", "1", "3", "4", "-1", low, high):
        for n in ("0", "-1", "2", low, high):
            at, length = (int(eval(x)) for x in (start, n))
            yield f'substr("abc", {start}, {n})', "abc"[at:at + length] if at >= 0 and length > 0 else ""
    for n in (low, high, "3", "-1"):
        yield f'stringat("abc", {n})', "error: Position out of bounds"
    empty = '""'
    yield f"strlen({empty})", 0
    yield f"isinstr({empty}, {empty})", 1
    yield f"strpos({empty}, {empty})", 0
    yield f'strpos({empty}, "a")', -1
    yield f'str_replace({empty}, {empty}, "x")', ""
    yield f'str_replace("aaa", "a", {empty})', ""
    yield f'tokenize("abc", {empty})', "abc"
    yield f"tokenize({empty}, {empty})", ""
    yield f"strtol({empty}, 10)", 0
    yield 'strtol("9223372036854775808", 10)', least
    for n in (low, high, "0", "1"):
        room = int(eval(n))
        yield f'text_strn("abcdefgh", {n}, 0)', escaped("abcdefgh", room)
        yield f'text_strn("abcdefgh", {n}, 1)', escaped("abcdefgh", room, True)
    # Strings have at most 511 bytes.
    full = "x" * 511
    yield f"strlen({text(full)})", 511
    yield f'strlen({text(full)} . "y")', 511
    yield f'strlen(str_replace({text("ab" * 200)}, "a", "1234567890"))', 511
    yield f'strpos({text(full[1:] + "y")}, "y")', 510
    yield f'substr({text(full[1:] + "y")}, 509, 9)', "xy"
    yield f"string_quoted({text(full)})", escaped(full, 511, True)
    for n in (low, high, "0", "9999"):
        yield f"errno_str({n})", ""
        yield f"errno_p({n})", 0
        yield f"signal_str({n})", ""
    for n in (low, high, "-1", "9999"):
        yield f"syscall_name({n})", ""
    yield f"return_str(1, {low})", least
    yield f"return_str(2, {low})", hex(least & M - 1)
    yield f"return_str(3, {low})", "01" + "0" * 21
    yield "msecs_to_string(0)", "0m0.000s"
    yield "msecs_to_string(-5)", "0m0.-005s"
    yield f"cputime_to_msecs({low})", -(-least // 10 ** 6)
    yield f"ctime({low})", "error: Time too far in the past to be converted"
    yield f"ctime({high})", "error: Time too far in the future to be converted"
    fault = "error: kernel string copy fault at 0x10"
    for n in ("0", "-1", low, "5"):
        yield f"kernel_string_n(16, {n})", fault
    yield 'kernel_string(0, "none")', "none"
    yield "kernel_string_quoted(0)", "0x0"
    yield "kernel_buffer_quoted(16, 5, 0)", ""
    yield "kernel_buffer_quoted(16, 0)", '""'
    yield f"kernel_buffer_quoted(16, 5, {low})", ""
    for n in ("-1", "0", low, high):
        yield f"target_set_pid({n})", 0
    yield "symname(0)", "0x0"
    yield f'sprintf("%x %o %u %d", {low}, {low}, {low}, {low})', f"{1 << 63:x} {1 << 63:o} {1 << 63} {least}"
    yield 'sprintf("[%*d|%-*d|%.*s|%.*s]", -5, 3, 5, 4, -1, "abc", 0, "abc")', "[3    |4    |abc|]"
    yield 'sprintf("%c%c", 256 + 66, 67)', "BC"


def sockets():
    import socket
    for name in ("tcp", "udp", "icmp", "igmp", "gre", "ospf", "ipv6-icmp", "sctp", "vrrp", "eigrp", "l2tp"):
        try:
            number = socket.getprotobyname(name)
        except OSError:
            number = int(getattr(socket, "IPPROTO_" + name.upper()))
        name = {"eigrp": "EIGRP", "ospf": "OSPF"}.get(name, name.upper())
        yield f"sock_prot_num2str({number})", name
        yield f'sock_prot_str2num("{name}")', number
    for number in (61, 138, 255, -1):
        yield f"sock_prot_num2str({number})", "UNDEF"
    yield 'sock_prot_str2num("")', -1
    yield 'sock_prot_str2num("tcp")', -1
    for names in ((), ("OOB",), ("PEEK", "TRUNC", "DONTWAIT"), ("CTRUNC", "EOR", "WAITALL", "CONFIRM", "ERRQUEUE", "NOSIGNAL", "MORE")):
        yield f"msg_flags_num2str({sum(getattr(socket, 'MSG_' + n) for n in names)})", "|".join(names)
    yield f"msg_flags_num2str({int(socket.MSG_DONTROUTE)})", "DONTROUTE|TRYHARD"
    for flags, names in ((0, ""), (0x1F, "ASYNC_NOSPACE|ASYNC_WAITDATA|NOSPACE|PASSCRED|PASSSEC"), (12, "NOSPACE|PASSCRED"), (0xFE0, "")):
        yield f"sock_flags_num2str({flags})", names
    yield "AF_INET()", int(socket.AF_INET)
    yield "AF_INET6()", int(socket.AF_INET6)
    for name in ("V6ONLY", "MULTICAST_HOPS", "UNICAST_HOPS", "TCLASS", "RECVPKTINFO", "CHECKSUM"):
        yield f'tcp_ipv6_sockopt_str({int(getattr(socket, "IPV6_" + name))})', "IPV6_" + name
    yield "tcp_ipv6_sockopt_str(999)", "UNDEF_SOCKOPT(999)"
    # enum dma_data_direction of linux/dma-direction.h
    for number, name in enumerate(("BIDIRECTIONAL", "TO_DEVICE", "FROM_DEVICE", "NONE", "[INVALID]")):
        yield f"describe_data_direction({number})", name
    yield "arch_bytes()", struct.calcsize("P")
    for ip in ("127.0.0.1", "10.20.30.255"):
        number = struct.unpack("=I", socket.inet_aton(ip))[0]
        yield f"format_ipaddr({number}, 2)", ip
        yield f"daddr_to_string({number})", ip
    yield "format_ipaddr(0, 3)", "*unknown address family*"
    for name in ("UNSPEC", "INET", "INET6", "NETLINK", "PACKET"):
        number = int(getattr(socket, "AF_" + name))
        yield f"sock_fam_num2str({number})", name
        yield f'sock_fam_str2num("{name}")', number
    yield 'sock_fam_str2num("LOCAL")', int(socket.AF_UNIX)
    yield 'sock_fam_str2num("AF_INET")', -1
    for name in ("STREAM", "DGRAM", "RAW", "SEQPACKET"):
        number = int(getattr(socket, "SOCK_" + name))
        yield f"sock_type_num2str({number})", name
        yield f'sock_type_str2num("{name}")', number
    for number in (-1, 8, 900, 1 << 40):
        yield f"sock_type_num2str({number})", "UNDEF"
        yield f"sock_state_num2str({number})", "UNDEF"
        yield f"tcp_sockstate_str({number + 90})", "UNDEF"
        yield f"tcp_sockopt_str({number + 90})", f"UNDEF_SOCKOPT({number + 90})"
    yield "sock_fam_num2str(900)", "UNDEF"
    yield 'sock_type_str2num("")', -1
    # The states are those of the kernel's <linux/net.h>, and of net/tcp_states.h in the order of RFC 9293.
    for number, name in enumerate(("FREE", "UNCONNECTED", "CONNECTING", "CONNECTED", "DISCONNECTING")):
        yield f"sock_state_num2str({number})", name
        yield f'sock_state_str2num("{name}")', number
    yield 'sock_state_str2num("SS_FREE")', -1
    for number, name in ((1, "ESTABLISHED"), (2, "SYN_SENT"), (6, "TIME_WAIT"), (10, "LISTEN"), (11, "CLOSING")):
        yield f"tcp_sockstate_str({number})", "TCP_" + name
    for name in ("NODELAY", "KEEPCNT", "INFO", "CONGESTION", "USER_TIMEOUT"):
        yield f'tcp_sockopt_str({int(getattr(socket, "TCP_" + name))})', "TCP_" + name


def masks():
    for numbers in ((), (1,), (2, 15), (9, 31, 63), tuple(range(1, 64))):
        yield f"sigset_mask_str({signed(sum(1 << n - 1 for n in numbers))})", ",".join(map(str, numbers))
    for flags, names in ((0, ""), (4, "SIGINFO"), (0x14000004, "SIGINFO|RESTART|RESTORER"), (0xC8000003, "NOCLDSTOP|NOCLDWAIT|ONSTACK|NODEFER|RESETHAND")):
        yield f"sa_flags_str({flags})", names
    for handler, name in ((0, "default"), (1, "ignored"), (-1, "error"), (0x401000, "0x401000")):
        yield f"sa_handler_str({handler})", name
    # Exits with 0, 1 and 255; killed by SIGKILL; by SIGSEGV with a core file; stopped by SIGTSTP; continued.
    for status in (0, 0x100, 0xFF00, 9, 11 | 0x80, 0x147F, 0xFFFF):
        yield f"WIFEXITED({status})", int(os.WIFEXITED(status))
        yield f"WEXITSTATUS({status})", os.WEXITSTATUS(status)
        yield f"WIFSIGNALED({status})", int(os.WIFSIGNALED(status))
        yield f"(WCOREDUMP({status}) != 0)", int(os.WCOREDUMP(status))
        yield f"WTERMSIG({status})", os.WTERMSIG(status)
        yield f"WIFSTOPPED({status})", int(os.WIFSTOPPED(status))
        yield f"WSTOPSIG({status})", os.WSTOPSIG(status)
        yield f"WIFCONTINUED({status})", int(os.WIFCONTINUED(status))


def amounts():
    for n in (0, 1, 999999, 1000000, 61000001, 3661 * 10 ** 6 + 42):
        yield f"usecs_to_string({n})", f"{n // 60000000}m{n // 1000000 % 60}.{n % 1000000:06}s"
        yield f"nsecs_to_string({n * 1000})", f"{n // 60000000}m{n // 1000000 % 60}.{n % 1000000 * 1000:09}s"
    for n, want in ((0, "    0"), (1023, " 1023"), (1024, "1.00K"), (1536, "1.50K"), (15 * 1024 + 512, "15.5K"), (1023 * 1024, "1023K"),
                    (100 << 20, " 100M"), (7 << 30 | 256 << 20, "7.25G"), (2000 << 30, "2000G")):
        yield f"bytes_to_string({n})", want
    for pages in (0, 1, 300):
        yield f"(pages_to_string({pages}) == bytes_to_string({pages * os.sysconf('SC_PAGE_SIZE')}))", 1
    for x in (0, 1, 0x1234, 0x12345678, 0x123456789ABCDEF0, -1):
        for size in (2, 4, 8):
            yield f"big_endian{size}({x})", swap(x, size)
            yield f"little_endian{size}({x})", signed(x) if size == 8 else x & (1 << 8 * size) - 1
    import resource
    for name in ("CPU", "FSIZE", "STACK", "NOFILE", "AS", "NICE", "RTTIME"):
        yield f'rlimit_from_str("RLIMIT_{name}")', getattr(resource, "RLIMIT_" + name)
    for name in ("", "NOFILE", "RLIMIT_", "RLIMIT_NOFILES"):
        yield f'rlimit_from_str("{name}")', -1


GROUPS = {
    g.__name__: g
    for g in (network, devices, strings, quotes, errors, times, faults, floats, other, edges, sockets, masks, amounts)
}
SESSION = 48
HANDLER = 8


def handlers(point, condition, checks, first):
    for at in range(0, len(checks), HANDLER):
        yield f"probe {point} {{ {condition}"
        for i, (expression, _) in enumerate(checks[at:at + HANDLER], first + at):
            yield f'  try {{ printf("{i}=%s\\036", sprint({expression})) }} catch (m) {{ printf("{i}=error: %s\\036", m) }}'
        yield "}"


def run(spile, load, script, options):
    command = [spile, *options, "-e", script, "-c", f"{load} calls 1 1"]
    done = subprocess.run(command, capture_output=True, timeout=250, env={**os.environ, "TZ": "UTC"})
    if done.returncode:
        sys.exit(f"status {done.returncode}: {done.stderr.decode()}\n{script}")
    out = done.stdout.decode("utf-8", "surrogateescape")
    return dict(row.split("=", 1) for row in out.split("\036") if "=" in row)


def main():
    spile, load, group = sys.argv[1:]
    checks = list(GROUPS[group]())
    wrong = 0
    for at in range(0, len(checks), SESSION):
        part = checks[at:at + SESSION]
        here = "if (pid() != target()) next"
        ways = [
            ("interpreter", handlers("begin", "", part, at), ["-u"]),
            ("kernel", handlers("syscall.getppid", here, part, at), []),
            ("kernel -u", handlers("syscall.getppid", here, part, at), ["-u"]),
        ]
        for way, lines, options in ways:
            if group == "other" and way == "interpreter":
                lines = [l for l in lines if "stack_size" not in l]
            got = run(spile, load, "\n".join(lines), ["-DMAXACTION=100000", *options])
            for i, (expression, want) in enumerate(part, at):
                if str(want) != got.get(str(i)) and not (str(i) not in got and "stack_size" in expression):
                    wrong += 1
                    print(f"{way}: {expression}: {got.get(str(i))!r}, not {str(want)!r}")
    print(f"{group}: {len(checks)} expressions, {wrong} wrong")


main()

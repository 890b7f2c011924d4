/*
 * Runs a command under ptrace. Prints the announcements of the region library in its processes, and the
 * word of each thread that calls getppid(LABEL): the facts that `spile profile` gets through BPF.
 *
 *     PID place OFFSET THREAD
 *     PID region NUMBER KIND PARENT NAME CODE      CODE is FILE+OFFSET, or 0
 *     PID word NUMBER LABEL TID
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAGIC 0x53504c31
#define PROCESSES 4096

static struct {
    pid_t pid;
    int64_t place;
} processes[PROCESSES];

static int64_t *place_of(pid_t pid)
{
    for (int i = 0; i < PROCESSES; i++)
        if (processes[i].pid == pid || processes[i].pid == 0) {
            processes[i].pid = pid;
            return &processes[i].place;
        }
    exit(3);
}

static int peek(pid_t pid, uint64_t from, void *to, size_t size)
{
    struct iovec here = {to, size}, there = {(void *)from, size};
    return process_vm_readv(pid, &here, 1, &there, 1, 0) == (ssize_t)size;
}

static pid_t group(pid_t tid)
{
    char path[64], line[256];
    int pid = tid;
    snprintf(path, sizeof path, "/proc/%d/status", tid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Tgid: %d", &pid) == 1)
            break;
    if (f)
        fclose(f);
    return pid;
}

static void print_code(pid_t pid, uint64_t code)
{
    char path[64], line[4096], file[4096];
    unsigned long start, end, offset;
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *f = fopen(path, "r");
    while (code && f && fgets(line, sizeof line, f))
        if (sscanf(line, "%lx-%lx %*s %lx %*s %*s %4095s", &start, &end, &offset, file) == 4 &&
            code >= start && code < end) {
            printf("%s+%#lx\n", file, (unsigned long)(code - start + offset));
            fclose(f);
            return;
        }
    printf("%#lx\n", (unsigned long)code);
    if (f)
        fclose(f);
}

static void call(pid_t tid)
{
    struct user_regs_struct r;
    if (ptrace(PTRACE_GETREGS, tid, 0, &r) != 0)
        return;
    pid_t pid = group(tid);
    if (r.orig_rax == SYS_prctl && r.rdi == MAGIC && r.rsi == 0) {
        *place_of(pid) = (int64_t)r.rdx;
        printf("%d place %lld %d\n", pid, (long long)r.rdx, tid);
    } else if (r.orig_rax == SYS_prctl && r.rdi == MAGIC && (r.rsi & 0xff) == 1) {
        char name[112];
        if (!peek(tid, r.r10, name, sizeof name))
            printf("%d bad region %u\n", pid, (unsigned)r.rdx);
        else {
            printf("%d region %u %u %u %s ", pid, (unsigned)r.rdx, (unsigned)r.rsi >> 8,
                   (unsigned)(r.rdx >> 32), name);
            print_code(pid, r.r8);
        }
    } else if (r.orig_rax == SYS_prctl && r.rdi == MAGIC) {
        printf("%d refused %lld\n", pid, (long long)r.rdx);
    } else if (r.orig_rax == SYS_getppid && r.rdi > 65536) {
        uint32_t word = 0;
        char label[32] = "";
        int64_t place = *place_of(pid);
        /* Until a process announces where the words are, its threads are in no region. */
        if (peek(tid, r.rdi, label, sizeof label - 1) &&
            (place == 0 || peek(tid, r.fs_base + place, &word, sizeof word)))
            printf("%d word %u %s %d\n", pid, word, label, tid);
    }
}

#define TRACED(call)                                                                               \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE)

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    pid_t child = argc > 1 ? fork() : -1;
    if (child == 0) {
        struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            TRACED(SYS_prctl),
            TRACED(SYS_getppid),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0)
            execvp(argv[1], argv + 1);
        perror(argv[1]);
        _exit(127);
    }
    int status, result = 1;
    if (child < 0 || waitpid(child, &status, 0) != child ||
        ptrace(PTRACE_SETOPTIONS, child, 0,
               PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                   PTRACE_O_TRACEVFORK | PTRACE_O_EXITKILL) != 0)
        return 2;
    ptrace(PTRACE_CONT, child, 0, 0);
    for (pid_t tid; (tid = waitpid(-1, &status, __WALL)) > 0 || errno == EINTR;) {
        if (!WIFSTOPPED(status)) {
            if (tid == child)
                result = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
            continue;
        }
        int signal = WSTOPSIG(status), event = status >> 16;
        if (event == PTRACE_EVENT_SECCOMP)
            call(tid);
        if (event != 0 || signal == SIGSTOP || signal == SIGTRAP)
            signal = 0;
        ptrace(PTRACE_CONT, tid, 0, signal);
    }
    fflush(stdout);
    return result;
}

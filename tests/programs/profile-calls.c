/* Short operations of the kernel, N times each: `profile-calls bytes N` reads and writes a byte, `profile-calls
   calls N` makes system calls without effect, `profile-calls switches N` sends a byte to another process on the same
   processor and back, `profile-calls forks N` creates children that end immediately, `profile-calls faults N` touches
   pages. Prints the time of main(), and the processor time of the program and its children. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"

static int bytes(long n) {
  int from = open("/dev/zero", O_RDONLY), to = open("/dev/null", O_WRONLY);
  char byte;
  for (long i = 0; i < n; i++)
    if (read(from, &byte, 1) != 1 || write(to, &byte, 1) != 1) return 1;
  return 0;
}

static int forks(long n) {
  for (long i = 0; i < n; i++) {
    pid_t child = fork();
    if (child == 0) _exit(0);
    if (waitpid(child, NULL, 0) != child) return 1;
  }
  return 0;
}

static int faults(long n) {
  size_t page = sysconf(_SC_PAGESIZE), size = n * page;
  char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || madvise(memory, size, MADV_NOHUGEPAGE)) return 1;
  for (size_t i = 0; i < size; i += page) memory[i] = 1;
  return 0;
}

static int calls(long n) {
  for (long i = 0; i < n; i++) syscall(SYS_getppid);
  return 0;
}

static int switches(long n) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  int there[2], back[2];
  char byte = 0;
  if (sched_setaffinity(0, sizeof one, &one) || pipe(there) || pipe(back)) return 1;
  pid_t child = fork();
  if (child == 0) {
    for (long i = 0; i < n; i++)
      if (read(there[0], &byte, 1) != 1 || write(back[1], &byte, 1) != 1) _exit(1);
    _exit(0);
  }
  for (long i = 0; i < n; i++)
    if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1) return 1;
  return waitpid(child, NULL, 0) != child;
}

static const struct {
  const char *name;
  int (*run)(long);
} kinds[] = {{"bytes", bytes}, {"calls", calls}, {"switches", switches}, {"forks", forks}, {"faults", faults}};

/* In seconds. */
static double processor_time(int who) {
  struct rusage use;
  getrusage(who, &use);
  return use.ru_utime.tv_sec + use.ru_stime.tv_sec + (use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv) {
  long begin = now(), n = argc == 3 ? atol(argv[2]) : 0;
  if (n < 1) return 2;
  unsigned kind = 0;
  while (kind < sizeof kinds / sizeof *kinds && strcmp(argv[1], kinds[kind].name)) kind++;
  if (kind == sizeof kinds / sizeof *kinds) return 2;
  int failed = kinds[kind].run(n);
  printf("main %.6f\n", (now() - begin) / 1e9);
  printf("cpu %.6f\n", processor_time(RUSAGE_SELF) + processor_time(RUSAGE_CHILDREN));
  return failed;
}

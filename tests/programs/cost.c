/* The cost of calls, switches and interrupts: `cost MODE N` prints the nanoseconds of each of N. */
#define _GNU_SOURCE
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long number;

static void on(int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  sched_setaffinity(0, sizeof one, &one);
}

/* A call that does almost nothing. */
static void calls(void) {
  for (long i = 0; i < number; i++) syscall(SYS_getppid);
}

/* Two processes alternate on one processor, with a read and a write for each switch. */
static void switches(void) {
  int there[2], back[2];
  char c = 'x';
  if (pipe(there) || pipe(back)) exit(1);
  on(0);
  if (fork() == 0) {
    for (long i = 0; i < number / 2; i++)
      if (read(there[0], &c, 1) != 1 || write(back[1], &c, 1) != 1) _exit(1);
    _exit(0);
  }
  for (long i = 0; i < number / 2; i++)
    if (write(there[1], &c, 1) != 1 || read(back[0], &c, 1) != 1) exit(1);
  wait(0);
}

/* A thread computes on one processor, and a system call on another processor interrupts it. */
static volatile int over;
static void *computes(void *unused) {
  on(1);
  while (!over) {
  }
  return unused;
}
static void interrupts(void) {
  pthread_t other;
  on(0);
  if (sysconf(_SC_NPROCESSORS_ONLN) < 2 || pthread_create(&other, 0, computes, 0) ||
      syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0))
    exit(1);
  for (long i = 0; i < number; i++) syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  over = 1;
  pthread_join(other, 0);
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } modes[] = {{"calls", calls}, {"switches", switches}, {"interrupts", interrupts}};
  number = argc > 2 ? atol(argv[2]) : 0;
  if (number < 2) return 2;
  for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++)
    if (!strcmp(argv[1], modes[i].name)) {
      struct timespec a, b;
      clock_gettime(CLOCK_MONOTONIC, &a);
      modes[i].run();
      clock_gettime(CLOCK_MONOTONIC, &b);
      printf("each %.1f\n", ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / number);
      return 0;
    }
  return 2;
}

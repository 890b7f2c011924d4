// Times in marked regions, which the program also measures itself. Prints a line for each region: its name,
// how often a thread entered it, and its exclusive wall time in nanoseconds.
//   region-times plain        a region computes, and a region within it sleeps
//   region-times fast N [T]   eight threads (or T) enter and leave a region N times
//   region-times killed       like plain, but the process kills itself in a region
//   region-times fork         a forked child, in a region of its parent and in its own
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <spile/region.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"

static void plain(void) {
  long work = 0, nap = 0;
  for (int i = 0; i < 5; i++) {
    long a = now();
    SPILE_REGION_BEGIN("work");
    compute(12);
    long b = now();
    SPILE_REGION_BEGIN("nap");
    usleep(8000);
    SPILE_REGION_END();
    long c = now();
    compute(4);
    SPILE_REGION_END();
    work += b - a + now() - c;
    nap += c - b;
  }
  printf("work 5 %ld\nnap 5 %ld\n", work, nap);
  fflush(stdout);
}

static long times;

static void *fast(void *unused) {
  for (long i = 0; i < times; i++) {
    SPILE_REGION_BEGIN("fast");
    SPILE_REGION_END();
  }
  return unused;
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  if (!strcmp(what, "plain")) plain();
  if (!strcmp(what, "fast")) {
    times = argc > 2 ? atol(argv[2]) : 1000;
    int count = argc > 3 ? atoi(argv[3]) : 8;
    pthread_t threads[1000];
    for (int i = 0; i < count; i++) pthread_create(&threads[i], 0, fast, 0);
    for (int i = 0; i < count; i++) pthread_join(threads[i], 0);
  }
  if (!strcmp(what, "killed")) {
    plain();
    SPILE_REGION_BEGIN("last");
    long a = now();
    compute(20);
    printf("last 1 %ld\n", now() - a);
    fflush(stdout);
    kill(getpid(), SIGKILL);
  }
  if (!strcmp(what, "fork")) {
    SPILE_REGION_BEGIN("around");
    if (fork() == 0) {
      SPILE_REGION_BEGIN("child");
      compute(10);
      SPILE_REGION_END();
      _exit(0);
    }
    wait(0);
    SPILE_REGION_END();
  }
}

// Regions that do not end in the regular way. Prints a line for each region: its name, how often a thread entered
// it, and its exclusive wall time in nanoseconds.
//   region-ends thread     a thread ends in a region, others continue
//   region-ends exit       the process ends in a region
//   region-ends exec       executes another program in a region; that program computes outside all regions
//   region-ends others     the same, by a thread that is not the first
//   region-ends spawn      children of vfork and posix_spawn in a region
//   region-ends fork       a forked child in a region, without the fork handlers of libraries
//   region-ends unpaired   ends without beginnings
//   region-ends jump       longjmp out of regions, into a block region
//   region-ends many N     eight threads enter N regions each
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <spile/region.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"

static void say(const char *name, int entries, long ns) {
  printf("%s %d %ld\n", name, entries, ns);
  fflush(stdout);
}

static void *in_thread(void *unused) {
  long a = now();
  SPILE_REGION_BEGIN("thread");
  compute(20);
  say("thread", 1, now() - a);
  pthread_exit(unused);
}

static void *others(void *unused) {
  long a = now();
  SPILE_REGION_BEGIN("others");
  compute(20);
  say("others", 1, now() - a);
  execv("/proc/self/exe", (char *[]){"region-ends", "after", 0});
  return unused;
}

static jmp_buf back;

static void jump(void) {
  SPILE_REGION("block");
  SPILE_REGION_BEGIN("inner");
  compute(5);
  longjmp(back, 1);
}

static void jumps(void) {
  SPILE_REGION("outer");
  if (setjmp(back) == 0) jump();
}

static long regions;

extern __attribute__((weak)) void spile_region_begin(const char *);
extern __attribute__((weak)) void spile_region_end(void);

static void *many(void *names) {
  for (long i = 0; i < regions; i++) {
    char *name = (char *)names + 16 * i;
    if (spile_region_begin) spile_region_begin(name);
    if (spile_region_end) spile_region_end();
  }
  return 0;
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  long a = now();
  if (!strcmp(what, "thread")) {
    pthread_t thread;
    pthread_create(&thread, 0, in_thread, 0);
    pthread_join(thread, 0);
    compute(60);
  }
  if (!strcmp(what, "exit")) {
    SPILE_REGION_BEGIN("exit");
    compute(20);
    say("exit", 1, now() - a);
    exit(0);
  }
  if (!strcmp(what, "exec")) {
    SPILE_REGION_BEGIN("exec");
    compute(20);
    say("exec", 1, now() - a);
    execv("/proc/self/exe", (char *[]){"region-ends", "after", 0});
  }
  if (!strcmp(what, "others")) {
    pthread_t thread;
    pthread_create(&thread, 0, others, 0);
    pthread_join(thread, 0);
  }
  if (!strcmp(what, "after")) compute(60);
  if (!strcmp(what, "spawn")) {
    SPILE_REGION_BEGIN("spawn");
    for (int i = 0; i < 3; i++) {
      pid_t child;
      if (posix_spawn(&child, "/proc/self/exe", 0, 0, (char *[]){"region-ends", "after", 0}, 0)) return 1;
      waitpid(child, 0, 0);
      child = vfork();
      if (child == 0) {
        execv("/proc/self/exe", (char *[]){"region-ends", "after", 0});
        _exit(1);
      }
      waitpid(child, 0, 0);
    }
    SPILE_REGION_END();
    say("spawn", 1, now() - a);
  }
  if (!strcmp(what, "fork")) {
    SPILE_REGION_BEGIN("fork");
    compute(10);
    if (syscall(SYS_fork) == 0) {
      for (int i = 0; i < 1000; i++) {
        SPILE_REGION_BEGIN("child");
        SPILE_REGION_END();
      }
      syscall(SYS_exit_group, 0);
    }
    wait(0);
    compute(10);
    SPILE_REGION_END();
    say("fork", 1, now() - a);
  }
  if (!strcmp(what, "unpaired")) {
    for (int i = 0; i < 3; i++) SPILE_REGION_END();
    for (int i = 0; i < 5; i++) {
      SPILE_REGION_BEGIN("unpaired");
      compute(4);
      SPILE_REGION_END();
      SPILE_REGION_END();
    }
    say("unpaired", 5, now() - a);
    compute(40);
  }
  if (!strcmp(what, "jump")) {
    for (int i = 0; i < 50; i++) jumps();
    say("inner", 50, now() - a);
    compute(60);
  }
  if (!strcmp(what, "many")) {
    regions = argc > 2 ? atol(argv[2]) : 1000;
    char *names = calloc(regions, 16);
    for (long i = 0; i < regions; i++) sprintf(names + 16 * i, "r%ld", i);
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], 0, many, names);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], 0);
  }
}

/* Spends processor time in known functions of programs and threads that come and go, and prints it in nanoseconds, by
   the threads' own clocks. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static volatile uint64_t sink;

/* Runs until the thread has used `ns` more, and returns what it used. */
#define RUNS(name, factor) \
  __attribute__((noinline)) static uint64_t name(uint64_t ns) { \
    uint64_t start = now(), used; \
    while ((used = now() - start) < ns) \
      for (int i = 0; i < 20000; i++) sink += i * sink * factor; \
    return used; \
  }
RUNS(before, 3)
RUNS(after, 5)
RUNS(of_parent, 7)
RUNS(of_child, 9)
RUNS(common, 11)
RUNS(rare, 13)
RUNS(brief, 15)

enum { THREADS = 1000, BRIEF = 1500, MS = 1000000 };

static uint64_t in_common, in_rare, in_brief;

static void *computes(void *number) {
  if ((intptr_t)number % 4) __atomic_fetch_add(&in_common, common(2 * MS), __ATOMIC_RELAXED);
  else __atomic_fetch_add(&in_rare, rare(2 * MS), __ATOMIC_RELAXED);
  return 0;
}

static void *lives_shortly(void *unused) {
  __atomic_fetch_add(&in_brief, brief(MS), __ATOMIC_RELAXED);
  return unused;
}

static void print(uint64_t first, uint64_t second) {
  printf("%llu %llu\n", (unsigned long long)first, (unsigned long long)second);
  fflush(stdout);
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  if (!strcmp(what, "exec")) {
    char used[32];
    snprintf(used, sizeof used, "%llu", (unsigned long long)before(600 * MS));
    execl(argv[2], argv[2], "executed", used, (char *)0);
    abort();
  } else if (!strcmp(what, "executed")) {
    print(strtoull(argv[2], 0, 10), after(1200 * MS));
  } else if (!strcmp(what, "fork")) {
    int ends[2];
    uint64_t used;
    before(100 * MS);
    if (pipe(ends)) abort();
    if (!fork()) {
      used = of_child(800 * MS);
      if (write(ends[1], &used, sizeof used) != sizeof used) abort();
      _exit(0);
    }
    uint64_t own = of_parent(500 * MS);
    if (read(ends[0], &used, sizeof used) != sizeof used) abort();
    wait(0);
    print(own, used);
  } else if (!strcmp(what, "threads")) {
    pthread_t t[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
      if (pthread_create(&t[i], 0, computes, (void *)i)) abort();
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], 0);
    print(in_common, in_rare);
  } else if (!strcmp(what, "brief")) {
    for (int i = 0; i < BRIEF; i++) {
      pthread_t t;
      if (pthread_create(&t, 0, lives_shortly, 0)) abort();
      pthread_join(t, 0);
    }
    print(in_brief, 0);
  }
  return 0;
}

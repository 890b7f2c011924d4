// Calls through known call paths, and waits at known futexes, for `spile profile`: `waits MODE [N]`.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef FUTEX2_SIZE_U32
#define FUTEX2_SIZE_U32 2
#endif

static long number = 1;

// Its value never changes, so a thread that waits for it sleeps until another wakes it.
static int gate;
static int gates[64] = {1};

static void nap(long ms) {
  struct timespec left = {ms / 1000, ms % 1000 * 1000000};
  while (nanosleep(&left, &left)) {
  }
}

// Not inlined. Code after each call prevents tail calls.
#define FRAME __attribute__((noinline, noclone))
static volatile long done;

FRAME static void leaf(void) {
  syscall(SYS_getppid);
  done++;
}

FRAME static void left(long n) {
  for (long i = 0; i < n; i++) leaf();
  done++;
}

FRAME static void right(long n) {
  for (long i = n; i > 0; i--) leaf();
  done += 2;
}

FRAME static void slow(long ms) {
  nap(ms);
  done++;
}

FRAME static void deep(long n) {
  if (n > 0)
    deep(n - 1);
  else
    leaf();
  done++;
}

// Calls getppid 3 N times in `left`, 5 N times in `right`, once below 11 frames of `deep`; sleeps 20 ms.
static void paths(void) {
  left(3 * number);
  right(5 * number);
  deep(10);
  slow(20);
}

static long futex(int *word, int op, int value, const struct timespec *limit) {
  return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, limit, NULL, 0);
}

static void *waits(void *unused) {
  for (long i = 0; i < number; i++) futex(&gate, FUTEX_WAIT, 0, NULL);
  for (long i = 0; i < 2; i++) futex(&gates[3], FUTEX_WAIT, 0, NULL);
  return unused;
}

// A thread waits N times for `gate` and twice for `gates[3]`, and the main thread wakes it after 2 ms each
// time. Then the main thread waits for `gate` for 20 ms, and once for a value that `gate` does not have.
static void wake(void) {
  pthread_t t;
  if (pthread_create(&t, 0, waits, 0)) exit(1);
  for (long i = 0; i < number + 2; i++) {
    nap(2);
    while (futex(i < number ? &gate : &gates[3], FUTEX_WAKE, 1, NULL) != 1) sched_yield();
  }
  pthread_join(t, 0);
  struct timespec limit = {0, 20000000};
  futex(&gate, FUTEX_WAIT, 0, &limit);
  futex(&gate, FUTEX_WAIT, 1, NULL);
}

// System calls of Linux 6.7 and 5.16, by number because headers may be older.
static long futex_wait(int *word) { return syscall(455, word, 0L, 0xffffffffUL, FUTEX2_SIZE_U32 | FUTEX_PRIVATE_FLAG, NULL, 0); }
static long futex_waitv(int *first, int *second) {
  struct {
    unsigned long value, address;
    unsigned flags, unused;
  } list[2] = {{0, (unsigned long)first, FUTEX2_SIZE_U32 | FUTEX_PRIVATE_FLAG, 0},
               {0, (unsigned long)second, FUTEX2_SIZE_U32 | FUTEX_PRIVATE_FLAG, 0}};
  return syscall(449, list, 2, 0, NULL, 0);
}

static void *waits2(void *unused) {
  for (long i = 0; i < number; i++) futex_wait(&gate);
  for (long i = 0; i < number; i++) futex_waitv(&gate, &gates[3]);
  return unused;
}

// Like `wake`, with those calls: waits N times for `gate`, then N times for `gate` or `gates[3]`; the latter is
// woken. Exits with status 3 if the kernel lacks the calls.
static void wake2(void) {
  if (syscall(454, &gate, 0xffffffffUL, 1, FUTEX2_SIZE_U32 | FUTEX_PRIVATE_FLAG) < 0) exit(errno == ENOSYS ? 3 : 1);
  pthread_t t;
  if (pthread_create(&t, 0, waits2, 0)) exit(1);
  for (long i = 0; i < 2 * number; i++) {
    int *word = i < number ? &gate : &gates[3];
    nap(2);
    while (syscall(454, word, 0xffffffffUL, 1, FUTEX2_SIZE_U32 | FUTEX_PRIVATE_FLAG) != 1) sched_yield();
  }
  pthread_join(t, 0);
}

// Calls getppid N times, and sleeps 8 times for 2 ms.
static void times(void) {
  for (long i = 0; i < number; i++) syscall(SYS_getppid);
  for (int i = 0; i < 8; i++) nap(2);
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } modes[] = {{"paths", paths}, {"wake", wake}, {"wake2", wake2}, {"times", times}};
  if (argc > 2) number = atol(argv[2]);
  for (unsigned i = 0; argc > 1 && i < sizeof modes / sizeof *modes; i++) {
    if (!strcmp(argv[1], modes[i].name)) {
      modes[i].run();
      return 0;
    }
  }
  return 2;
}

// The lives of threads and processes, for `spile profile`: `lives MODE [N]`.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *self;
static long number = 1;

static void nap(long ms) {
  struct timespec left = {ms / 1000, ms % 1000 * 1000000};
  while (nanosleep(&left, &left)) {
  }
}

static void *call(void *n) {
  for (long i = 0; i < (long)n; i++) syscall(SYS_getppid);
  return 0;
}

// Number of threads that are about to wait for ever.
static volatile int waiting;

// Waits until `threads` threads are about to pause, then 20 ms more for their calls to begin. The first wait makes no
// system call.
static void nap_beside(int threads) {
  while (waiting < threads) {
  }
  nap(20);
}

static void *execute(void *unused) {
  nap_beside(2);
  execl(self, self, "calls", "7", NULL);
  return unused;
}

static void *wait_forever(void *unused) {
  __atomic_add_fetch(&waiting, 1, __ATOMIC_SEQ_CST);
  for (;;) pause();
  return unused;
}

static void interrupt(int s) { (void)s; }

// Calls getppid N times.
static void calls(void) { call((void *)number); }

// Starts N threads, one after the other, which call getppid once each.
static void threads(void) {
  for (long i = 0; i < number; i++) {
    pthread_t t;
    if (pthread_create(&t, 0, call, (void *)1)) exit(1);
    pthread_join(t, 0);
  }
}

// A thread that is not the leader executes a program, while the leader and another thread wait.
static void exec_thread(void) {
  pthread_t a, b;
  pthread_create(&a, 0, wait_forever, 0);
  pthread_create(&b, 0, execute, 0);
  wait_forever(0);
}

// Children of vfork, which executes a program, of fork, which does not, and of clone3.
static void children(void) {
  pid_t child = vfork();
  if (child == 0) {
    execl(self, self, "calls", "3", NULL);
    _exit(127);
  }
  waitpid(child, 0, 0);
  child = fork();
  if (child == 0) {
    call((void *)5);
    _exit(4);
  }
  waitpid(child, 0, 0);
  unsigned long args[11] = {[4] = SIGCHLD};
  child = syscall(SYS_clone3, args, sizeof args);
  if (child == 0) {
    syscall(SYS_getppid);
    syscall(SYS_exit_group, 0);
  }
  waitpid(child, 0, 0);
}

// A signal ends a sleep, and another one interrupts a read, which continues.
static void signals(void) {
  struct sigaction action = {.sa_handler = interrupt};
  sigaction(SIGALRM, &action, 0);
  struct itimerval soon = {.it_value = {0, 20000}};
  setitimer(ITIMER_REAL, &soon, 0);
  pause();
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, 0);
  int ends[2];
  if (pipe(ends)) exit(1);
  if (fork() == 0) {
    nap(60);
    if (write(ends[1], "x", 1) != 1) _exit(1);
    _exit(0);
  }
  setitimer(ITIMER_REAL, &soon, 0);
  char c;
  if (read(ends[0], &c, 1) != 1) exit(1);
  wait(0);
}

// The process is killed while a thread is in a system call.
static void killed(void) {
  pthread_t a;
  pthread_create(&a, 0, wait_forever, 0);
  nap_beside(1);
  kill(getpid(), SIGKILL);
}

// Two threads wait until another process ends this one.
static void wait_both(void) {
  pthread_t a;
  pthread_create(&a, 0, wait_forever, 0);
  wait_forever(0);
}

// N threads return, and N are in a system call when the leader ends the process.
static void ends(void) {
  for (long i = 0; i < number; i++) {
    pthread_t t;
    pthread_create(&t, 0, wait_forever, 0);
    pthread_create(&t, 0, call, (void *)1);
    pthread_join(t, 0);
  }
  nap(20);
}

// Touches N pages of memory.
static void pages(void) {
  char *memory = mmap(0, number * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) exit(1);
  madvise(memory, number * 4096, MADV_NOHUGEPAGE);
  for (long i = 0; i < number; i++) memory[i * 4096] = 1;
}

// Computes for N ms.
static void spin(void) {
  struct timespec start, now;
  clock_gettime(CLOCK_MONOTONIC, &start);
  do {
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < number);
}

// Threads that sleep once for N ms, nap repeatedly, and compute; the leader waits for them.
static void *sleeps(void *unused) {
  nap(number);
  return unused;
}
static void *naps(void *unused) {
  for (long i = 0; i < number / 2; i++) nap(2);
  return unused;
}
static void *spins(void *unused) {
  spin();
  return unused;
}
static void mixed(void) {
  pthread_t t[3];
  pthread_create(&t[0], 0, sleeps, 0);
  pthread_create(&t[1], 0, naps, 0);
  pthread_create(&t[2], 0, spins, 0);
  for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
}

// Writes and reads 1,000 bytes, and fails to close an invalid descriptor, N times each.
static void bytes(void) {
  int ends[2];
  char buffer[1000] = "";
  if (pipe(ends)) exit(1);
  for (long i = 0; i < number; i++)
    if (write(ends[1], buffer, 1000) != 1000 || read(ends[0], buffer, 1000) != 1000 || close(-1) != -1) exit(1);
}

// 32 threads make calls as fast as they can for N seconds. Prints the number of calls.
static long made[32];
static void *hurry(void *which) {
  struct timespec start, now;
  long calls = 0;
  clock_gettime(CLOCK_MONOTONIC, &start);
  do {
    for (int i = 0; i < 1000; i++) syscall(SYS_getppid);
    calls += 1000;
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while (now.tv_sec < start.tv_sec + number || (now.tv_sec == start.tv_sec + number && now.tv_nsec < start.tv_nsec));
  made[(long)which] = calls;
  return 0;
}
static void rate(void) {
  pthread_t t[32];
  long sum = 0;
  for (long i = 0; i < 32; i++)
    if (pthread_create(&t[i], 0, hurry, (void *)i)) exit(1);
  for (int i = 0; i < 32; i++) {
    pthread_join(t[i], 0);
    sum += made[i];
  }
  printf("%ld calls\n", sum);
}

// Prints a line, then waits for one: a recording can begin in between.
static void ready(void) {
  pthread_t a;
  pthread_create(&a, 0, wait_forever, 0);
  puts("ready");
  fflush(stdout);
  if (getchar() == EOF) exit(1);
  call((void *)11);
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } modes[] = {
      {"calls", calls},   {"threads", threads}, {"exec-thread", exec_thread}, {"children", children},
      {"signals", signals}, {"killed", killed},  {"pages", pages},             {"spin", spin},
      {"mixed", mixed},   {"bytes", bytes},     {"ready", ready},         {"rate", rate},
      {"wait", wait_both},  {"ends", ends},
  };
  self = argv[0];
  if (argc > 2) number = atol(argv[2]);
  for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++)
    if (argc > 1 && !strcmp(argv[1], modes[i].name)) {
      modes[i].run();
      return 0;
    }
  fprintf(stderr, "lives: no such mode\n");
  return 2;
}

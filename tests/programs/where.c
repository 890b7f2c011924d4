/* Spends known times in known places, and prints them in nanoseconds, by the program's own clocks. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/userfaultfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static volatile uint64_t sink;

/* Runs until the thread has used this much processor time. */
#define RUNS(name, factor) \
  __attribute__((noinline)) static void name(uint64_t ns) { \
    uint64_t until = now(CLOCK_THREAD_CPUTIME_ID) + ns; \
    while (now(CLOCK_THREAD_CPUTIME_ID) < until) \
      for (int i = 0; i < 20000; i++) sink += i * sink * factor; \
  }
RUNS(crunch, 3)
RUNS(nibble, 5)

static pthread_mutex_t big_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t waited;

__attribute__((noinline)) static void update_index(void) {
  uint64_t start = now(CLOCK_MONOTONIC);
  pthread_mutex_lock(&big_lock);
  __atomic_fetch_add(&waited, now(CLOCK_MONOTONIC) - start, __ATOMIC_RELAXED);
  usleep(10000);
  pthread_mutex_unlock(&big_lock);
  __asm__ volatile("" ::: "memory"); /* No tail call. */
}

static void *worker(void *unused) {
  for (int i = 0; i < 20; i++) update_index();
  return unused;
}

__attribute__((noinline)) static uint64_t receive(int fd, int times) {
  uint64_t sum = 0;
  for (char c; times--;) {
    uint64_t start = now(CLOCK_MONOTONIC);
    if (read(fd, &c, 1) != 1) abort();
    sum += now(CLOCK_MONOTONIC) - start;
  }
  return sum;
}

static void answers(int fd, int times) {
  while (times--) {
    usleep(20000);
    if (write(fd, "x", 1) != 1) abort();
  }
  _exit(0);
}

static pthread_mutex_t config_lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) static void reload(void) {
  pthread_mutex_lock(&config_lock);
  abort();
}

static void *reloader(void *unused) {
  reload();
  return unused;
}

static pthread_mutex_t first_lock = PTHREAD_MUTEX_INITIALIZER, second_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;

__attribute__((noinline)) static void update(pthread_mutex_t *mine, pthread_mutex_t *other) {
  pthread_mutex_lock(mine);
  pthread_barrier_wait(&both);
  pthread_mutex_lock(other);
  abort();
}

static void *updates_first(void *unused) {
  update(&first_lock, &second_lock);
  return unused;
}

static void *updates_second(void *unused) {
  update(&second_lock, &first_lock);
  return unused;
}

__attribute__((noinline)) static void doze(void) {
  for (;;) usleep(20000);
}

enum { PAGES = 20, PAGE = 4096 };

/* Provides each page that a thread waits for after 20 ms. */
static void *provider(void *fd) {
  for (int i = 0; i < PAGES; i++) {
    struct uffd_msg message;
    if (read((int)(intptr_t)fd, &message, sizeof message) != sizeof message) abort();
    usleep(20000);
    struct uffdio_zeropage page = {{message.arg.pagefault.address & ~(PAGE - 1ULL), PAGE}, 0, 0};
    if (ioctl((int)(intptr_t)fd, UFFDIO_ZEROPAGE, &page)) abort();
  }
  return 0;
}

__attribute__((noinline)) static uint64_t touch(volatile char *pages) {
  uint64_t start = now(CLOCK_MONOTONIC);
  for (int i = 0; i < PAGES; i++) sink += pages[i * PAGE];
  return now(CLOCK_MONOTONIC) - start;
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  if (!strcmp(what, "functions")) {
    uint64_t first = 0, second = 0;
    for (int i = 0; i < 30; i++) {
      uint64_t a = now(CLOCK_THREAD_CPUTIME_ID);
      crunch(80000000);
      uint64_t b = now(CLOCK_THREAD_CPUTIME_ID);
      nibble(20000000);
      first += b - a;
      second += now(CLOCK_THREAD_CPUTIME_ID) - b;
    }
    printf("%llu %llu\n", (unsigned long long)first, (unsigned long long)second);
  } else if (!strcmp(what, "lock")) {
    pthread_t t[3];
    for (int i = 0; i < 3; i++) pthread_create(&t[i], 0, worker, 0);
    for (int i = 0; i < 3; i++) pthread_join(t[i], 0);
    printf("%llu\n", (unsigned long long)waited);
  } else if (!strcmp(what, "hung")) {
    int ends[2];
    pthread_t t;
    if (pipe(ends)) abort();
    pthread_mutex_lock(&config_lock);
    pthread_create(&t, 0, reloader, 0);
    usleep(100000);
    puts("ready");
    fflush(stdout);
    receive(ends[0], 1);
  } else if (!strcmp(what, "deadlock")) {
    pthread_t t[2];
    pthread_barrier_init(&both, 0, 2);
    pthread_create(&t[0], 0, updates_first, 0);
    pthread_create(&t[1], 0, updates_second, 0);
    usleep(100000);
    puts("ready");
    fflush(stdout);
    doze();
  } else if (!strcmp(what, "faults")) {
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC), file = memfd_create("pages", 0);
    struct uffdio_api api = {UFFD_API, 0, 0};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ftruncate(file, PAGES * PAGE)) abort();
    char *pages = mmap(0, PAGES * PAGE, PROT_READ, MAP_SHARED, file, 0);
    struct uffdio_register range = {{(uintptr_t)pages, PAGES * PAGE}, UFFDIO_REGISTER_MODE_MISSING, 0};
    if (ioctl(fd, UFFDIO_REGISTER, &range)) abort();
    pthread_t t;
    pthread_create(&t, 0, provider, (void *)(intptr_t)fd);
    printf("%llu\n", (unsigned long long)touch(pages));
    pthread_join(t, 0);
  } else if (!strcmp(what, "pipe")) {
    int ends[2];
    if (pipe(ends)) abort();
    if (!fork()) answers(ends[1], 20);
    printf("%llu\n", (unsigned long long)receive(ends[0], 20));
    wait(0);
  } else if (!strcmp(what, "peer")) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&at, size) || listen(listener, 1)) abort();
    getsockname(listener, (void *)&at, &size);
    if (!fork()) answers(accept(listener, 0, 0), 20);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (void *)&at, size)) abort();
    uint64_t sum = receive(fd, 20);
    printf("%llu %d\n", (unsigned long long)sum, ntohs(at.sin_port));
    wait(0);
  } else if (!strcmp(what, "file")) {
    int ready[2], mine = open(argv[2], O_CREAT | O_RDWR, 0600);
    if (pipe(ready)) abort();
    if (!fork()) {
      int its = open(argv[2], O_RDWR);
      flock(its, LOCK_EX);
      answers(ready[1], 1);
    }
    receive(ready[0], 1);
    /* The child ends with its lock, or has ended. */
    wait(0);
    if (!fork()) {
      int its = open(argv[2], O_RDWR);
      flock(its, LOCK_EX);
      if (write(ready[1], "x", 1) != 1) abort();
      usleep(400000);
      _exit(0);
    }
    receive(ready[0], 1);
    uint64_t start = now(CLOCK_MONOTONIC);
    flock(mine, LOCK_EX);
    printf("%llu\n", (unsigned long long)(now(CLOCK_MONOTONIC) - start));
    wait(0);
  }
}

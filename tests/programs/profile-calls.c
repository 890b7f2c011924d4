/* What the kernel does often and briefly: `profile-calls bytes N` reads and writes a byte, N times each,
   `profile-calls forks N` makes children that end at once, `profile-calls faults N` touches pages. Prints the time of
   main(). */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

int main(int argc, char **argv) {
  long begin = now(), n = argc == 3 ? atol(argv[2]) : 0;
  if (n < 1) return 2;
  int failed = !strcmp(argv[1], "bytes") ? bytes(n) : !strcmp(argv[1], "forks") ? forks(n) : faults(n);
  printf("main %.6f\n", (now() - begin) / 1e9);
  return failed;
}

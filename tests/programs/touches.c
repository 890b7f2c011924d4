// Touches pages that have no memory yet, in two functions and two regions: N rounds of 400 pages in `once`, and M (or N)
// of 1,200 in `thrice`.
#define _GNU_SOURCE
#include <spile/region.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE 4096L
#define PAGES 400

static volatile char *memory;

static __attribute__((noinline)) void once(void) {
  for (long i = 0; i < PAGES; i++) memory[i * PAGE] = 1;
}

static __attribute__((noinline)) void thrice(void) {
  for (long i = 0; i < 3 * PAGES; i++) memory[i * PAGE] = 2;
}

static void forget(void) { madvise((void *)memory, 3 * PAGES * PAGE, MADV_DONTNEED); }

int main(int argc, char **argv) {
  long rounds = argc > 1 ? atol(argv[1]) : 1, others = argc > 2 ? atol(argv[2]) : rounds;
  memory = mmap(0, 3 * PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise((void *)memory, 3 * PAGES * PAGE, MADV_NOHUGEPAGE);
  for (long i = 0; i < rounds; i++) {
    SPILE_REGION_BEGIN("once");
    once();
    SPILE_REGION_END();
    forget();
  }
  for (long i = 0; i < others; i++) {
    SPILE_REGION_BEGIN("thrice");
    thrice();
    SPILE_REGION_END();
    forget();
  }
  return 0;
}

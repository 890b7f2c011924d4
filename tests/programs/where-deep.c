/* Computes for known times below two functions, whose stacks are the same for more than a thousand bytes of names. */
#include <stdint.h>
#include <stdio.h>
#include <time.h>

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* No tail calls and no copies: each function stays on the stack. */
#define KEEP __asm__ volatile("" ::: "memory")
#define FUNCTION __attribute__((noinline, noclone)) static void

FUNCTION crunch(uint64_t ns) {
  for (uint64_t until = now() + ns; now() < until;) KEEP;
}

#define LONG(number, calls) \
  FUNCTION a_function_with_a_name_of_more_than_sixty_bytes_for_its_line_##number(uint64_t ns) { \
    calls(ns); \
    KEEP; \
  }
#define NAME(number) a_function_with_a_name_of_more_than_sixty_bytes_for_its_line_##number
LONG(1, crunch)
LONG(2, NAME(1))
LONG(3, NAME(2))
LONG(4, NAME(3))
LONG(5, NAME(4))
LONG(6, NAME(5))
LONG(7, NAME(6))
LONG(8, NAME(7))
LONG(9, NAME(8))

FUNCTION left(uint64_t ns) {
  NAME(9)(ns);
  KEEP;
}

/* Not the same as left(): the compiler would make them one. */
FUNCTION right(uint64_t ns) {
  NAME(9)(ns + 1);
  KEEP;
}

int main(void) {
  uint64_t times[3] = {now()};
  left(900000000);
  times[1] = now();
  right(300000000);
  times[2] = now();
  printf("%llu %llu\n", (unsigned long long)(times[1] - times[0]), (unsigned long long)(times[2] - times[1]));
  return 0;
}

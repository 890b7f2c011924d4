// A library with two parallel regions and a marked part, and with MAIN a program that calls it, for `spile profile`.
#include <sys/syscall.h>
#include <unistd.h>

#ifdef MAIN
void solve(void);

int main(void) {
  solve();
}
#else
#include <spile/region.h>

static __attribute__((noinline)) void twice(void) {
#pragma omp parallel num_threads(2)  // first region
  syscall(SYS_getppid);
  __asm__ volatile("");
#pragma omp parallel num_threads(2)  // second region
  syscall(SYS_getppid);
}

void solve(void) {
  SPILE_REGION_BEGIN("solving");  // mark
  twice();
  SPILE_REGION_END();
}
#endif

// Two parallel regions, for `spile profile`: one is in a function, a thread sleeps in the other.
#include <omp.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

__attribute__((noinline)) static void work(void) {
#pragma omp parallel num_threads(4)  // first region
  for (int i = 0; i < 5; i++) syscall(SYS_getppid);
}

int main(void) {
  work();
#pragma omp parallel num_threads(4)  // second region
  if (omp_get_thread_num() == 0) {
    struct timespec ms = {0, 60000000};
    nanosleep(&ms, 0);
  }
}

// Thread-local variables, of the program or with LIBRARY of a library. Each of three threads sets its own.
#include <pthread.h>
#include <stddef.h>

#if defined(LIBRARY) || !defined(MAIN)
struct two {
  long first, second;
};
_Thread_local char before[100];
_Thread_local long total = 5;
static _Thread_local struct two own = {1, 2};
__attribute__((noinline)) void seen(long by) { __asm__ volatile("" : : "r"(by), "r"(&total), "r"(&own), "r"(before) : "memory"); }
void bump(long by) {
  total += by;
  own.second = -by;
  seen(by);
}
#endif

#ifndef LIBRARY
void bump(long by);
static void *run(void *n) {
  bump((long)n);
  return NULL;
}
int main(void) {
  for (long n = 1; n <= 3; n++) {
    pthread_t thread;
    pthread_create(&thread, NULL, run, (void *)n);
    pthread_join(thread, NULL);
  }
  bump(100);
}
#endif

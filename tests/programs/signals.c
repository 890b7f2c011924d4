/* The first instruction of a function causes a signal. The stack goes through the signal's handler. */
#include <signal.h>
#include <unistd.h>
__attribute__((noinline)) int target(int n) { __asm__ volatile("" ::: "memory"); return n + 1; }
__attribute__((noinline)) void ends(int n) { target(n); _exit(0); }
static void handler(int s, siginfo_t *i, void *u) { ends(s); }
__attribute__((noinline, noclone)) int stops(int n) { __asm__ volatile("ud2"); return n + 1; }
int main(void) {
  struct sigaction a = {0};
  a.sa_sigaction = handler;
  a.sa_flags = SA_SIGINFO;
  sigaction(SIGILL, &a, 0);
  return stops(1);
}

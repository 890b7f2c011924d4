/* Loads `loaded.so` from its own folder, deep in the stack, and immediately calls through it. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
__attribute__((noinline)) int target(int n) { __asm__ volatile("" ::: "memory"); return n + 1; }
__attribute__((noinline)) int back(int n) { volatile int r = target(n); return r + 1; }
__attribute__((noinline)) int calls(const char *path) {
  void *library = dlopen(path, RTLD_NOW);
  int (*through)(int (*)(int), int) = (int (*)(int (*)(int), int))dlsym(library, "through");
  volatile int r = through(back, 6);
  return r;
}
__attribute__((noinline)) int down(const char *path, int n) {
  volatile char room[40];
  room[n & 31] = 1;
  volatile int r = n ? down(path, n - 1) : calls(path);
  return r + room[1];
}
int main(int argc, char **argv) {
  char path[4096];
  snprintf(path, sizeof path, "%s", argv[0]);
  strcpy(strrchr(path, '/') + 1, "loaded.so");
  down(path, 9);
  return 0;
}

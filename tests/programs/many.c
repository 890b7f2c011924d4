/* `many LIBRARY FILE`: calls `hit` through the library until the file exists. */
#include <dlfcn.h>
#include <unistd.h>
__attribute__((noinline)) void hit(void) { __asm__ volatile("" ::: "memory"); }
int main(int argc, char **argv) {
  void (*through)(void (*)(void)) = (void (*)(void (*)(void)))dlsym(dlopen(argv[1], RTLD_NOW), "through");
  for (int i = 0; i < 120000 && access(argv[2], F_OK) != 0; i++) {
    through(hit);
    usleep(1000);
  }
  return 0;
}

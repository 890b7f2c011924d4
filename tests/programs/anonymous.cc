// Functions in unnamed namespaces, and an object whose symbol has a version.
#include <typeinfo>
namespace {
struct S { int v; __attribute__((noinline)) int go(int x) { __asm__ volatile("" ::: "memory"); return x + v; } };
__attribute__((noinline)) int foo(int x) { __asm__ volatile("" ::: "memory"); return x; }
}
namespace ns { namespace { __attribute__((noinline)) int bar(S s) { __asm__ volatile("" ::: "memory"); return s.v; } } }
extern "C" __attribute__((noinline)) int touch(const void *p) { __asm__ volatile("" ::: "memory"); return p != 0; }
int main() {
  S s{3};
  volatile int r = s.go(1) + foo(2) + ns::bar(s);
  r += touch(&typeid(double));
  return r == 77;
}

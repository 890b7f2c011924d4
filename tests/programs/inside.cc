// Functions of C++ inside functions: lambdas, methods of local classes; constructors and destructors.
#include <cstdio>

volatile int sink;

struct A {
  int v;
  A(int x) : v(x) { sink = x; }
  virtual ~A() { sink = v; }
};

struct B : A {
  B(int x) : A(x) {}
};

template <class F> __attribute__((noinline)) int each(F f, int n) {
  int sum = 0;
  for (int i = 0; i < n; i++)
    sum += f(i);
  return sum;
}

__attribute__((noinline)) int locals(int k) {
  auto body = [&](int x) __attribute__((noinline)) {
    sink = x;
    return x * k;
  };
  struct Local {
    __attribute__((noinline)) int method(int a) {
      sink = a;
      return a + 1;
    }
  } local;
  return each(body, 5) + local.method(3) + local.method(4);
}

__attribute__((noinline)) int objects(int n) {
  int sum = 0;
#ifdef __clang__
#pragma clang loop unroll(disable)
#else
#pragma GCC unroll 1
#endif
  for (int i = 0; i < n; i++) {
    A a(i);
    B *b = new B(i);
    A *volatile base = b;
    sum += a.v + base->v;
    delete base;
  }
  return sum;
}

int main(int argc, char **) { printf("%d\n", locals(argc + 6) + objects(argc + 11)); }

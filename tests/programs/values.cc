// Values of references, arrays and pointers. The function uses all of them behind the marked line.
#include <stdio.h>

struct T {
  int a;
  long k;
};

struct Holder {
  int &number;
  T (&pair)[2];
};

static long sum;

__attribute__((noinline)) static void use(const void *p) { __asm__ volatile("" : : "r"(p) : "memory"); }

__attribute__((noinline)) static void look(int &x, int (&arr)[3], int *&p, T (&ts)[2], T &t, T *&tp, int &&rv, int *q,
                                           bool &b, const char *&str, char (&buf)[8], Holder &h, const long &c) {
  int local[3] = {5, 6, 7};
  T pair[2] = {{1, 2}, {3, 4}};
  use(local);
  use(pair);
  sum += x + c; // here
  use(&x), use(arr), use(&p), use(ts), use(&t), use(&tp), use(&rv), use(q), use(&b), use(&str), use(buf), use(&h), use(&c);
  use(local);
  use(pair);
}

int main() {
  int x = 42, a[3] = {1, 2, 3}, *p = a + 1, q[2] = {8, 9};
  T ts[2] = {{10, 20}, {30, 40}}, t = {50, 60}, *tp = ts;
  bool b = true;
  const char *s = "text";
  char buf[8] = "letters";
  Holder h = {x, ts};
  const long c = -5;
  use(q);
  look(x, a, p, ts, t, tp, 77, q, b, s, buf, h, c);
  return sum != 37;
}

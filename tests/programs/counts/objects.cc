// Constructors, destructors, virtual and templated functions, lambdas and exceptions of C++.
#include <cstdio>
#include <functional>
#include <stdexcept>

#define NOINLINE __attribute__((noinline))
volatile int sink;
long n_A, n_dA, n_B, n_dB, n_lambda, n_twice, n_virt, n_get, n_copy, n_throws, n_op, n_stat, n_V, n_dV, n_call, n_returned;

//: A::A = n_A
//: A::~A = n_dA
//: A::virt = n_virt
struct A {
  int v;
  A(int x) : v(x) {
    n_A++;
    sink = x;
  }
  virtual ~A() {
    n_dA++;
    sink = v;
  }
  NOINLINE virtual int virt(int x) {
    n_virt++;
    return sink + x;
  }
  //: A::get = n_get
  int get() const {
    n_get++;
    return v + sink;
  }
};
//: B::B = n_B
//: B::~B = n_dB
struct B : A {
  B(int x) : A(x + 1) { n_B++; }
  ~B() { n_dB++; }
  int virt(int x) override { return x; }
};
// A virtual base: two kinds of constructors.
//: V::V = n_V
//: V::~V = n_dV
struct Base {
  int b = 3;
};
struct V : virtual Base {
  NOINLINE V() {
    n_V++;
    sink = b;
  }
  NOINLINE ~V() { n_dV++; }
};
struct W : V {
  int w = 4;
};

//: twice<*> = n_twice
template <class T> NOINLINE T twice(T x) {
  n_twice++;
  return x + x;
}

//: throws = n_throws, n_returned
NOINLINE int throws(int n) {
  n_throws++;
  if (n % 3 == 0)
    throw std::runtime_error("three");
  n_returned++;
  return n;
}

//: Op::operator+ = n_op
//: Op::make = n_stat
struct Op {
  int v;
  NOINLINE Op operator+(const Op &o) const {
    n_op++;
    return {v + o.v};
  }
  static Op make(int v) {
    n_stat++;
    sink = v;
    return {v};
  }
};

template <class F> NOINLINE int each(F f, int n) {
  int sum = 0;
  for (int i = 0; i < n; i++)
    sum += f(i);
  return sum;
}

//: lambdas::operator() = n_lambda
NOINLINE int lambdas(int k) {
  return each(
      [&](int x) {
        n_lambda++;
        sink = x;
        return x * k;
      },
      5);
}
namespace {
//: called = n_call
NOINLINE int called(const std::function<int(int)> &f, int n) {
  n_call++;
  return f(n);
}
} // namespace

NOINLINE int objects(int n) {
  int sum = 0;
  for (int i = 0; i < n; i++) {
    A a(i);
    B *b = new B(i);
    A *volatile base = b;
    sum += a.get() + base->virt(1) + a.virt(2) + base->get();
    delete base;
    V v;
    W w;
    sum += v.b + w.w;
  }
  return sum;
}

int main() {
  int sum = 0;
  for (int i = 0; i < 9; i++) {
    sum += objects(i) + lambdas(i) + twice(i) + (int)twice(1.5) + (int)twice(2L);
    try {
      sum += throws(i);
    } catch (std::exception &) {
      sum++;
    }
    Op a{i};
    sum += (a + Op::make(i + 1)).v + called([](int x) { return x; }, i);
  }
  std::fprintf(stderr, "%s", sum == 1 ? "." : "");
#define SHOW(x) std::printf(#x " %ld\n", x)
  SHOW(n_A), SHOW(n_dA), SHOW(n_B), SHOW(n_dB), SHOW(n_lambda), SHOW(n_twice), SHOW(n_virt), SHOW(n_get), SHOW(n_throws);
  SHOW(n_op), SHOW(n_stat), SHOW(n_V), SHOW(n_dV), SHOW(n_call), SHOW(n_returned);
}

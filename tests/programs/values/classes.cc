// References, members, pointers to members, enum classes, captures.
//: @var("constants::byte") ~ constants::byte
//: @var("constants::large") ~ constants::large
//: @var("constants::negative") ~ constants::negative
//: $x[0] ~ x
//: $arr[2] ~ arr[2]
//: $p[0] ~ p[0]
//: $ts[1]->k ~ ts[1].k
//: $t->a ~ t.a
//: $tp->k ~ tp->k
//: $rv[0] ~ rv
//: $flag[0] ~ flag
//: $c[0] ~ c
//: $h->number[0] ~ h.number
//: $h->pair[1]->a ~ h.pair[1].a
//: $colour ~ colour
//: $colours[0] ~ colours
//: $field ~ field
//: $d->b ~ d.b
//: $d->v ~ d.v
//: $d->own ~ d.own
//: $d->inner->z ~ d.inner.z
//: $d->still ~ d.still
//: $text->size ~ text.size
//: $text->data[1] ~ text.data[1]
//: $this->own ~ this->own
//: $local->x ~ local.x
//: $local->y ~ local.y
#include <stdio.h>

struct constants {
  static const int byte = 200;
  static constexpr long large = 3000000000;
  static constexpr int negative = -7;
  int in_use;
} constants_in_use;
const int constants::byte;

struct T {
  int a;
  long k;
};
struct Holder {
  int &number;
  T (&pair)[2];
};
enum class Colour : unsigned char { Red, Blue = 201 };
enum class Wide : long { Low = -5000000000, High = 5 };
struct Base {
  int b;
  virtual ~Base() {}
};
struct V {
  int v;
};
struct Derived : Base, V {
  long own;
  struct {
    int z;
  } inner;
  const int still = 12;
  long look(int &x, int (&arr)[3], int *&p, T (&ts)[2], T &t, T *&tp, int &&rv, bool &flag, Holder &h, const long &c,
            Colour colour, Wide &colours, long T::*field, Derived &d);
};
struct Text {
  unsigned long size;
  const char *data;
};
struct Small {
  short x;
  int y;
};

static long sum;
static __attribute__((noinline)) void use(const void *p) { __asm__ volatile("" : : "r"(p) : "memory"); }
static __attribute__((noinline)) long mix(long n) {
  __asm__ volatile("" : "+r"(n));
  return n;
}

__attribute__((noinline)) long Derived::look(int &x, int (&arr)[3], int *&p, T (&ts)[2], T &t, T *&tp, int &&rv,
                                             bool &flag, Holder &h, const long &c, Colour colour, Wide &colours,
                                             long T::*field, Derived &d) {
  Text text{static_cast<unsigned long>(mix(3)), "abc"};
  Small local{static_cast<short>(mix(-2)), static_cast<int>(mix(70000))};
  sum += mix(x); // here
  use(&x), use(arr), use(&p), use(ts), use(&t), use(&tp), use(&rv), use(&flag), use(&h), use(&c), use(&colours), use(&d);
  return sum + text.size + text.data[1] + local.x + local.y + static_cast<long>(colour) + t.*field + own;
}

int main() {
  int x = 42, a[3] = {1, 2, 3}, *p = a + 1;
  T ts[2] = {{10, 20}, {30, 40}}, t = {50, 60}, *tp = ts;
  bool flag = true;
  Holder h = {x, ts};
  const long c = -5;
  Wide wide = Wide::Low;
  Derived d;
  d.b = 3;
  d.v = 4;
  d.own = 5;
  d.inner.z = 6;
  use(&d), use(&wide);
  return d.look(x, a, p, ts, t, tp, 77, flag, h, c, static_cast<Colour>(mix(201)), wide, &T::k, d) == 1;
}

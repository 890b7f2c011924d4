// Functions that return structures in each way of the calling convention.
#include <stdio.h>

struct Point { int x; short y; unsigned char z; };
struct Span { long from; unsigned length : 5; int kind : 7; const char *name() const { return "span"; } };
struct Named { const char *text; Point at; };
struct Mixed { double part; long whole; };
struct Large { long words[3]; int last; };
struct Copied {
  int value;
  explicit Copied(int v) : value(v) {}
  Copied(const Copied &other) : value(other.value) {}
  ~Copied() { value = 0; }
};
struct __attribute__((packed)) Packed { char first; long second; };

#define OUT __attribute__((noipa)) extern
OUT Point point(int n) { return {n, (short)-n, 7}; }
OUT Span span(int n) { return {n * 10L, 9, -3}; }
OUT Named named(int n) { return {"text", {n, 2, 3}}; }
OUT Mixed mixed(int n) { return {n / 2.0, n + 1L}; }
OUT Large large(int n) { return {{n, 2, 3}, n + 4}; }
OUT Copied copied(int n) { return Copied(n + 5); }
OUT Packed packed(int n) { return {'p', n + 6L}; }

int main() {
  long sum = point(1).x + span(2).from + named(3).at.x + mixed(4).whole + large(5).last;
  sum += copied(6).value + packed(7).second;
  printf("%ld\n", sum);
}

// Forms of types and locations: floating point, 128 bits, complex numbers, thread-local variables,
// arrays whose sizes only the running program has, enumerations of bool, fields of unions.
//: $twice ~ *(long*)&twice
//: $single ~ *(unsigned*)&single
//: $twice$ ~ twice
//: $single$ ~ single
//: $half_way$ ~ half_way
//: $s->d$ ~ s->d
//: $s->f$ ~ s->f
//: $s->z$ ~ "{.real=1, .imaginary=-2}"
//: $s->zf$ ~ "{.real=0.5, .imaginary=3}"
//: $s->z->real$ ~ "1"
//: $s->z->imaginary$ ~ "-2"
//: $s->ds[1]$ ~ s->ds[1]
//: $dp[0]$ ~ *dp
//: $huge$ ~ huge
//: $huger$ ~ huger
//: $small_wide ~ "12345"
//: $small_wide$ ~ small_wide
//: $negative_wide ~ "-3"
//: $negative_wide$ ~ negative_wide
//: $s->wide ~ "-5"
//: $s->wide$ ~ s->wide
//: $s->uwide ~ "1"
//: $per_thread ~ per_thread
//: $pair_of_thread->y ~ pair_of_thread.y
//: $static_of_thread ~ static_of_thread
//: $array_of_thread[2] ~ array_of_thread[2]
//: $rows[1][2] ~ rows[1][2]
//: $cube[1][1][2] ~ cube[1][1][2]
//: $passed[1][2] ~ (*(int(*)[3][3])passed)[1][2]
//: $truth ~ truth
//: $s->truth ~ s->truth
//: $u->low ~ u->low
//: $u->nested->b ~ u->nested.b
//: $u->wide ~ u->wide
//: $crossing->b ~ "2387828538430180847"
//: $crossing->c ~ crossing->c
//: $crossing$ ~ "{.a=17, .b=2387828538430180847, .c=300}"
//: $u$$ ~ *u
//: $small$ ~ small
//: $n ~ n
#include <complex.h>
#include <stdbool.h>

enum truth { NO, YES } __attribute__((packed));
struct all {
  double d;
  float f;
  double _Complex z;
  float _Complex zf;
  double ds[3];
  __int128 wide;
  unsigned __int128 uwide;
  enum truth truth : 1;
};
union fields {
  unsigned low : 5;
  struct {
    unsigned a : 3, b : 13;
  } nested;
  unsigned long wide : 45;
};
struct crossing {
  unsigned char a : 5;
  unsigned long b : 62;
  unsigned short c : 9;
} __attribute__((packed));
struct pair {
  int x, y;
};

_Thread_local int per_thread = 77;
_Thread_local struct pair pair_of_thread = {5, -6};
_Thread_local long array_of_thread[3] = {1, 2, 333};
static _Thread_local short static_of_thread = -9;
static long sum;
__attribute__((noinline)) static void use(const void *p) { __asm__ volatile("" : : "r"(p) : "memory"); }
__attribute__((noinline)) static long mix(long n) {
  __asm__ volatile("" : "+r"(n));
  return n;
}

__attribute__((noinline)) static long look(int n, struct all *s, union fields *u, struct crossing *crossing,
                                           double *dp, int passed[n][n], double twice, float single) {
  int rows[n][n], cube[2][n][n + 1];
  double half_way = 0.5;
  __int128 huge = ((__int128)mix(1) << 100) + 5, small_wide = mix(12345), negative_wide = mix(-3);
  unsigned __int128 huger = (unsigned __int128)mix(-1) << 64;
  enum truth truth = mix(1);
  struct pair small = {mix(3), mix(-4)};
  for (int i = 0; i < n * n; i++)
    (&rows[0][0])[i] = i * 10;
  for (int i = 0; i < 2 * n * (n + 1); i++)
    (&cube[0][0][0])[i] = i * 100;
  use(rows), use(cube), use(&twice), use(&single), use(&half_way), use(&huge), use(&small_wide), use(&huger);
  use(&negative_wide), use(&truth), use(&small), use(&static_of_thread), use(&per_thread);
  sum += mix(n); // here
  use(rows), use(cube);
  return sum + (long)twice + (long)single + (long)half_way + (long)huge + (long)small_wide + (long)huger +
         (long)negative_wide + truth + small.x + static_of_thread + per_thread + pair_of_thread.y + s->d > dp[0] +
         u->wide + crossing->b + passed[1][2] + array_of_thread[2];
}

int main(void) {
  struct all s = {2.5, -0.1f, 1.0 - 2.0 * I, 0.5f + 3.0f * I, {1e300, 0.1, -1e-7}, -5, 1, YES};
  union fields u = {.wide = 0x123456789abc};
  struct crossing crossing = {17, 0x2123456789abcdef, 300};
  int passed[3][3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
  use(&s), use(&u), use(&crossing), use(passed);
  return look(mix(3), &s, &u, &crossing, s.ds, passed, s.d / 7, s.f * 3) == 1;
}

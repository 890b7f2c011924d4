// Numbers of all kinds, bit fields, variable-length arrays, structures by value.
//: $w->low ~ w->low
//: $w->mid ~ w->mid
//: $w->high ~ w->high
//: $w->wide ~ w->wide
//: $w->flag ~ w->flag
//: $w->tail ~ w->tail
//: $w->last ~ w->last
//: $w->kind ~ w->kind
//: $w->colour ~ w->colour
//: $u->bits->first ~ u->bits.first
//: $u->bits->second ~ u->bits.second
//: $u->part ~ u->part
//: $u->signed_part ~ u->signed_part
//: $u->all ~ u->all
//: $p->a ~ p->a
//: $p->b ~ p->b
//: $tiny ~ tiny
//: $small ~ small
//: $yes ~ yes & 1
//: $colour ~ colour
//: $negative ~ negative
//: $wide ~ wide
//: $vla[2] ~ vla[2]
//: $vla$ ~ vla
//: $n ~ n
//: $grid[1][2] ~ grid[1][2]
//: $pair->x ~ pair.x
//: $pair->y ~ pair.y
//: $big->words[2] ~ big.words[2]
//: $text[1] ~ text[1]
//: $static_one ~ static_one
//: $matrix[1][1] ~ matrix[1][1]
//: $mixed->c ~ mixed.c
//: $mixed->s ~ mixed.s
//: $mixed->l ~ mixed.l
#include <stdbool.h>

enum colour { RED, GREEN = 5, BLUE = 200 };
enum negative { LESS = -3, MORE = 4 };
struct words {
  unsigned low : 3, mid : 11;
  int high : 5;
  long wide : 40;
  bool flag : 1;
  unsigned long tail : 63;
  signed char last : 4;
  enum negative kind : 4;
  enum colour colour : 9;
} __attribute__((aligned(8)));
struct packed {
  unsigned a : 5;
  unsigned long long b : 50;
} __attribute__((packed));
union both {
  struct {
    unsigned first : 7, second : 9;
  } bits;
  unsigned part : 12;
  int signed_part : 6;
  unsigned all;
};
struct pair {
  int x, y;
};
struct big {
  long words[5];
};
struct mixed {
  char c;
  short s;
  long l;
};

static long sum;
static int matrix[2][2] = {{1, 2}, {3, 4}};
__attribute__((noinline)) static void use(const void *p) { __asm__ volatile("" : : "r"(p) : "memory"); }
__attribute__((noinline)) static long mix(long n) {
  __asm__ volatile("" : "+r"(n));
  return n;
}

__attribute__((noinline)) static long look(struct words *w, union both *u, struct packed *p, signed char tiny,
                                           unsigned short small, bool yes, enum colour colour, enum negative negative,
                                           unsigned long wide, int n, struct pair pair, struct big big,
                                           struct mixed mixed, const char *text) {
  static int static_one = 11;
  int vla[n];
  int grid[2][3] = {{1, 2, 3}, {4, 5, 6}};
  for (int i = 0; i < n; i++)
    vla[i] = i * 7 - 20;
  use(vla);
  use(grid);
  use(&static_one);
  sum += mix(n); // here
  use(vla);
  use(grid);
  return sum + w->low + u->all + p->a + tiny + small + yes + colour + negative + (long)wide + n + pair.x + pair.y +
         big.words[2] + mixed.c + mixed.s + mixed.l + text[1] + vla[1] + matrix[1][1] + static_one;
}

int main(void) {
  struct words w = {5, 1033, -9, -123456789012, true, 0x4123456789abcdef, -5, LESS, BLUE};
  union both u = {{97, 301}};
  struct packed p = {19, 0x3cafe12345678};
  struct pair pair = {-7, 1 << 30};
  struct big big = {{1, 2, -33, 4, 5}};
  struct mixed mixed = {'q', -300, 1L << 40};
  use(&w), use(&u), use(&p), use(&pair), use(&big), use(&mixed);
  return look(&w, &u, &p, mix(-100), mix(60000), mix(1), mix(BLUE), mix(LESS), mix(-2), mix(4), pair, big, mixed, "text") == 1;
}

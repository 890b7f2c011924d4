/* Functions for probes by name, with parameters and variables of many kinds. With an argument it waits
   for a line of standard input before it calls them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct point {
  int x;
  unsigned y : 4;
  unsigned z : 12;
};
enum color { RED, GREEN = 5, BLUE };
struct item {
  const char *name;
  struct item *next;
  struct point at;
  enum color color;
  int many[4];
  char text[16];
};
struct big {
  long a[4];
};

static int counter = 7;
long total = 1000;

__attribute__((noinline)) long add(int a, long b, short c) {
  long sum = a + b + c;
  counter += 1;
  total += sum;
  return sum;
}

__attribute__((noinline)) int list(struct item *first, int depth) {
  int n = 0;
  for (struct item *it = first; it; it = it->next)
    n += depth;
  return n;
}

__attribute__((noinline)) int down(int n) {
  if (n <= 0)
    return 0;
  int below = down(n - 1);
  total += below;
  return below + n;
}

static inline __attribute__((always_inline)) int twice(int v) {
  total += v;
  return 2 * v;
}

__attribute__((noinline)) int uses(int v) { return twice(v) + 1; }

__attribute__((noinline)) struct big make(long base) {
  struct big b = {{base, base + 1, base + 2, base + 3}};
  return b;
}

__attribute__((noinline)) long many(long a, long b, long c, long d, long e, long f, long g,
                                    long h) {
  total += a + b + c + d + e + f + g + h;
  return g * h;
}

static __attribute__((noinline)) int hidden(const char *text) {
  total += strlen(text);
  return -3;
}

int main(int argc, char **argv) {
  if (argc > 1)
    getchar();
  struct item second = {"second", NULL, {3, 4, 5}, RED, {1, 2, 3, 4}, "two"};
  struct item first = {"first", &second, {-1, 9, 300}, GREEN, {5, 6, 7, 8}, "one"};
  add(1, 20, -3);
  /* Compilers remove variables that list() does not read. */
  __asm__ volatile("" : : "r"(&first), "r"(&second) : "memory");
  list(&first, argc);
  down(3);
  uses(21);
  struct big b = make(40);
  many(1, 2, 3, 4, 5, 6, 7, 8);
  hidden(getenv("NO_SUCH_NAME") ? "" : "five!");
  free(malloc(77));
  return b.a[0] == 40 ? 0 : 1;
}

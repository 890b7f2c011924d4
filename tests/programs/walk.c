/* A program whose functions, lines and variables the cases of dwarf.toml name.
 * Lines are named by number: keep them where they are. */
#include <stdlib.h>
#include <string.h>

enum colour { RED, GREEN = 5, BLUE = -1 };
struct point { int x; short y; };
struct box {
  struct point from, to;
  union { long whole; struct { int low; int high; }; };
  unsigned flag : 3, more : 7;
  signed tiny : 2;
  enum colour colour;
  char name[12];
  int grid[2][3];
  struct box *next;
};

static long counter = 7;
int shared = 9;
volatile int sink;

static inline __attribute__((always_inline)) int inner(int a, int b) {
  int product = a * b;
  sink = product;
  return product + 1;
}

__attribute__((noipa)) long work(struct box *box, int count, const char *text) {
  long sum = 0;
  for (int i = 0; i < count; i++) {
    int part = inner(i, box->from.x);
    sum += part;
  }
  counter += sum;
  return sum + strlen(text);
}

__attribute__((noipa)) int many(int a, long b, short c, char d, unsigned e, int f, int g, long h) {
  sink = a + b + c + d + e + f + g + h;
  return -sink;
}

int main(int argc, char **argv) {
  struct box *box = calloc(1, sizeof *box);
  box->from.x = 3;
  box->to.y = -2;
  box->high = 77;
  box->flag = 5;
  box->more = 100;
  box->tiny = -1;
  box->colour = BLUE;
  box->grid[1][2] = 12;
  strcpy(box->name, "boxed");
  box->next = box;
  work(box, 3, "hello");
  work(box, 2, "you");
  many(-1, -2, -3, 'd', 5, 6, 7, 8);
  return 0;
}

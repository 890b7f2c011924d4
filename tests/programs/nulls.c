/* Null pointers for texts, in a structure and as parameters. */
#include <stddef.h>
struct inner { char *s; unsigned char *u; };
struct node { int n; char *name; char *none; struct inner in; char *list[2]; };
__attribute__((noinline)) int show(struct node *n, char *p, char *bad) {
  __asm__ volatile("" ::: "memory");
  return n->n;
}
int main(void) {
  struct node n = {7, "text", NULL, {"in", NULL}, {"x", NULL}};
  return show(&n, NULL, (char *)8) - 7;
}

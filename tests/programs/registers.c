/* Structures that are passed in registers, and a variable of a position-independent program. */
struct pair {
  int x;
  short y : 5;
  short z : 11;
};
struct span {
  const char *text;
  unsigned from;
  signed char tag;
};

long seen = 3;

__attribute__((noinline)) long pairs(struct pair p, struct span s, double f) {
  __asm__ volatile("" : : "r"(s.text), "r"(p.x) : "memory");
  return p.x + p.y + s.from + s.tag + (long)f;
}

__attribute__((noinline)) int bump(int by) {
  seen += by;
  return by * 2;
}

int main(void) {
  struct pair p = {-7, -3, 900};
  struct span s = {"text", 4000000000u, -5};
  pairs(p, s, 2.5);
  bump(4);
  bump(5);
  return 0;
}

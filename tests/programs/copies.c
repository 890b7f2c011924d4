/* A compilation unit with its own structure, and its own function NAME. With MAIN it has main(), which also
   calls the functions of two other units. */
struct pair {
  int first, second;
};

__attribute__((noinline, noclone)) int NAME(struct pair *p) {
  __asm__ volatile("" : : "r"(p) : "memory");
  return p->first + p->second;
}

#ifdef MAIN
int step2(struct pair *p);
int step3(struct pair *p);

int main(void) {
  struct pair p = {1, 2};
  int sum = NAME(&p);
  p.first = 3;
  sum += step2(&p);
  p.first = 5;
  return sum + step3(&p) != 15;
}
#endif

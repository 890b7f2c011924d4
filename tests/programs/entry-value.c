// `a` of `look` is in a register that the call of `use` overwrites: after it, only the caller knows it.
__attribute__((noinline)) int use(int x) {
  __asm__ volatile("" : : "r"(x) : "memory", "rdi");
  return x;
}
__attribute__((noinline)) int look(int a, int b) {
  int c = use(b + a);
  return use(c) + 1;
}
int main(void) { return look(5, 2) != 8; }

/* A library that is loaded while its program runs. It calls back from several of its own frames. */
__attribute__((noinline)) int within(int (*back)(int), int n) {
  volatile char room[72];
  room[n & 63] = 1;
  volatile int r = n ? within(back, n - 1) : back(n);
  return r + room[1];
}
__attribute__((noinline)) int through(int (*back)(int), int n) { volatile int r = within(back, n); return r + 1; }

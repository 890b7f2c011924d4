/* Loops that compilers turn into vector instructions. Prints a number that depends on every element. */
#include <stdio.h>
#include <stdint.h>
#include <string.h>
enum { N = 4096 };
static uint8_t a[N]; static int32_t b[N]; static float f[N];
__attribute__((noinline)) long work(int n) {
  long sum = 0;
  for (int i = 0; i < n; i++) b[i] = (a[i] << 3) ^ (i * 7);
  for (int i = 0; i < n; i++) if (b[i] == 80 || a[i] > 200) sum += b[i] >> 2;
  for (int i = 0; i < n; i++) f[i] = b[i] > 100 ? f[i] * 0.5f + 1 : f[i] - 2;
  for (int i = 0; i < n; i++) a[i] = (a[i] == 7 ? 9 : a[i] + 1);
  return sum + (long)f[n / 3];
}
int main(void) {
  for (int i = 0; i < N; i++) { a[i] = i * 31 % 251; f[i] = i; }
  long s = 0;
  for (int r = 0; r < 3; r++) s = s * 31 + work(N - r);
  printf("%ld\n", s);
}

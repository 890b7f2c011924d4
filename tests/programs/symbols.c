/* Functions whose names are too long for the string of a stack, called from two places, and data. */
#define NAME(n) a_function_with_a_long_name_that_takes_room_in_texts_number_##n
#define CALLS(n, next) \
  __attribute__((noinline)) int NAME(n)(int x) { volatile int r = next(x + 1); return r + 1; }
int zeroes[64];
int numbers[64] = {1, 2, 3};
__attribute__((noinline)) int target(int x) { __asm__ volatile("" ::: "memory"); return x; }
CALLS(1, target)
CALLS(2, NAME(1))
CALLS(3, NAME(2))
CALLS(4, NAME(3))
CALLS(5, NAME(4))
CALLS(6, NAME(5))
CALLS(7, NAME(6))
CALLS(8, NAME(7))
CALLS(9, NAME(8))
__attribute__((noinline)) int touch(int *p) { __asm__ volatile("" ::: "memory"); return *p; }
__attribute__((noinline)) int inner(int x) { __asm__ volatile("" ::: "memory"); return x + numbers[1]; }
__attribute__((noinline)) int outer(int x) { volatile int r = inner(x) + inner(x + 1); return r; }
__attribute__((noinline)) int first(int x) { volatile int r = NAME(9)(x); return r; }
__attribute__((noinline)) int second(int x) { volatile int r = NAME(9)(x) + 1; return r; }
int main(void) {
  volatile int sum = 0;
  for (int i = 0; i < 5; i++) sum += first(i);
  for (int i = 0; i < 3; i++) sum += second(i);
  for (int i = 0; i < 4; i++) sum += outer(i);
  sum += touch(&zeroes[3]) + touch(&numbers[1]);
  return 0;
}

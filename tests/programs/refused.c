/* Two of these functions begin with a lock prefix. The kernel refuses to probe such instructions. */
#include <stdio.h>

long word;

__attribute__((naked, noinline)) void unix_lock(void) { __asm__("lock incq word(%rip)\n\tret"); }
__attribute__((naked, noinline)) void only_lock(void) { __asm__("lock incq word(%rip)\n\tret"); }
__attribute__((noinline)) long unix_one(long a) { __asm__ volatile("" : "+r"(a)); return a + 1; }
__attribute__((noinline)) long unix_two(int b, long c) { __asm__ volatile("" : "+r"(b)); return b * c; }

int main(void)
{
    for (int i = 1; i <= 2; i++) {
        unix_lock();
        only_lock();
        word += unix_one(i) + unix_two(i, 10);
    }
    return word == 39 ? 0 : 1;
}

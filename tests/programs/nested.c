// Calls inner(0), inner(1), inner(2) through outer, then part() 150 times at once and one time for 0.9 s.
#include <stdlib.h>
#include <time.h>

__attribute__((noinline)) int inner(int x)
{
	asm volatile("" ::: "memory");
	return x + 1;
}

__attribute__((noinline)) int outer(int x)
{
	int y = inner(x);
	return y * 2;
}

__attribute__((noinline)) void part(long ns)
{
	struct timespec time = {0, ns};
	if (ns)
		nanosleep(&time, 0);
}

int main(void)
{
	int sum = 0;
	for (int i = 0; i < 3; i++)
		sum += outer(i);
	for (int i = 0; i < 150; i++)
		part(0);
	part(900000000);
	void *memory = malloc(100);
	free(memory);
	return sum == 12 ? 0 : 1;
}

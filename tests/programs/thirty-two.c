/* A 32-bit program without a C library: calls getppid (64) with the address of two numbers, then exits. */
static const struct { int a, b; } numbers = {-7, 0x12345678};

void _start(void)
{
	long result;
	__asm__ volatile("int $0x80" : "=a"(result) : "a"(64), "b"(&numbers) : "memory");
	__asm__ volatile("int $0x80" : "=a"(result) : "a"(1), "b"(0) : "memory");
}

/* Stands in for the kernel's file with debugging information: each function is linked at the address of a
 * function of the running kernel. */
__attribute__((section("code_a"))) int first(int *p)
{
    *p += 1;
    *p *= 3;
    return *p;
}

__attribute__((section("code_b"))) int second(int *p)
{
    return *p + 2;
}

__attribute__((section("code_s"))) void _stext(void) {}

/* The macros of spile/region.h in every standard of C and C++. */
#include "../../include/spile/region.h"

extern
#ifdef __cplusplus
    "C"
#endif
    long
    syscall(long number, ...);

int main(void)
{
    SPILE_REGION_BEGIN("here");
    /* getppid of x86-64. */
    syscall(110, "in");
    if (1)
        SPILE_REGION_END();
    else
        return 1;
    syscall(110, "out");
    return 0;
}

/* More regions than numbers, recursion, deep nesting, and ends without beginnings. */
#include <stdio.h>

#include "../../include/spile/region.h"
#include "context-ask.h"

static char names[70000][8];

static void recursive(int depth)
{
    SPILE_REGION_BEGIN("recursive");
    SPILE_REGION_BEGIN("step");
    if (depth > 0)
        recursive(depth - 1);
    else
        ask("deep");
    SPILE_REGION_END();
    SPILE_REGION_END();
}

int main(void)
{
    SPILE_REGION_END();
    recursive(100);
    ask("after-recursion");
    SPILE_REGION_BEGIN("around");
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 70000; i++) {
            snprintf(names[i], sizeof names[i], "%d", i);
            spile_region_begin(names[i]);
            if (i == 0)
                ask("first");
            if (i == 69999)
                ask("last");
            spile_region_end();
        }
    ask("around");
    SPILE_REGION_END();
    SPILE_REGION_END();
    ask("end");
    return 0;
}

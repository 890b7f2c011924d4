/* A module with OpenMP, which a program opens by dlopen: its libgomp is in no global scope. */
#include "context-ask.h"

int work(void)
{
    int sum = 0;
#pragma omp parallel num_threads(2) reduction(+ : sum)
    {
        ask("in-module");
#pragma omp barrier
        sum += 1;
    }
    return sum;
}

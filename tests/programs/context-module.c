/* A module with OpenMP, which a program opens with dlopen, so that its libgomp is outside the global scope. */
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

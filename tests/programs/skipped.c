// A call of `late` whose entry comes while another thread is in `holder`, and whose return comes after
// that: a handler at `holder` that takes long makes the handler at the entry skip its hit.
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static atomic_int enters, left;
static volatile int held;

__attribute__((noinline)) void holder(void) { held = 1; }
__attribute__((noinline)) int late(int n) {
    while (!left) usleep(1000);
    return n + left;
}

static void *hold(void *unused) {
    enters = 1;
    holder();
    left = 1;
    return unused;
}

int main(void) {
    pthread_t other;
    pthread_create(&other, NULL, hold, NULL);
    while (!enters) usleep(1000);
    usleep(10000);
    int first = late(1);
    pthread_join(other, NULL);
    return first + late(1) - 4;
}

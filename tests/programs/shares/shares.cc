// As shares.c, in a class.
#include <cstdio>
#include <cstdlib>
#include <ctime>

// The compiler does not know it.
static volatile long unit = 100000;

static double now() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

namespace work {
template <long P> struct Loop {
  [[gnu::noinline]] long heavy(long n) {
    long s = 1;
    for (long i = 0; i < n; i++) s = (s * P + i) % 1000003;
    return s;
  }
  [[gnu::noinline]] long light(long n) {
    long s = 2;
    for (long i = 0; i < n; i++) s = (s * P + i) % 1000033;
    return s;
  }
};
}  // namespace work

int main(int, char **argv) {
  double spent[2] = {0, 0}, end = std::atof(argv[1]);
  volatile long sink = 0;
  work::Loop<31> loop;
  for (double a = now(); a < end;) {
    sink += loop.heavy(3 * unit);
    double b = now();
    spent[0] += b - a;
    sink += loop.light(unit);
    a = now();
    spent[1] += a - b;
  }
  std::printf("%f\n", spent[0] / (spent[0] + spent[1]));
}

/* A ray tracer: `profile-ray ROWS THREADS`. Draws spheres over a chequered plane, with shadows and reflections, and
   four rays for each point. Threads take rows in turn and write each to /dev/null. Prints the time of main(). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef struct { double x, y, z; } Vec;

enum { SPHERES = 40, DEEPEST = 4, MOST_THREADS = 64, MOST_ROWS = 4096 };

static struct { Vec centre; double radius; Vec colour; } spheres[SPHERES];
static int rows = 1200, next_row, sink;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static Vec add(Vec a, Vec b) { return (Vec){a.x + b.x, a.y + b.y, a.z + b.z}; }
static Vec times(Vec a, double f) { return (Vec){a.x * f, a.y * f, a.z * f}; }
static double dot(Vec a, Vec b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
static Vec unit(Vec a) { return times(a, 1 / sqrt(dot(a, a))); }

/* Returns the nearest sphere that a ray hits, or -1, and its distance. */
static int nearest(Vec from, Vec to, double *far) {
  int hit = -1;
  *far = 1e30;
  for (int i = 0; i < SPHERES; i++) {
    Vec away = add(from, times(spheres[i].centre, -1));
    double b = dot(away, to), c = dot(away, away) - spheres[i].radius * spheres[i].radius;
    double d = b * b - c;
    if (d <= 0) continue;
    double t = -b - sqrt(d);
    if (t > 1e-6 && t < *far) {
      *far = t;
      hit = i;
    }
  }
  return hit;
}

static Vec trace(Vec from, Vec to, int depth) {
  static const Vec light = {0.48, 0.80, -0.36};
  double far, unused;
  int hit = nearest(from, to, &far);
  Vec normal, colour;
  double mirror;
  if (hit >= 0) {
    normal = unit(add(add(from, times(to, far)), times(spheres[hit].centre, -1)));
    colour = spheres[hit].colour;
    mirror = 0.4;
  } else if (to.y < -1e-6) {
    far = -(from.y + 1) / to.y;
    normal = (Vec){0, 1, 0};
    long tile = (long)floor(from.x + to.x * far) + (long)floor(from.z + to.z * far);
    colour = tile & 1 ? (Vec){0.8, 0.8, 0.8} : (Vec){0.2, 0.2, 0.2};
    mirror = 0.1;
  } else {
    return (Vec){0.4, 0.6, 0.6 + 0.4 * to.y};
  }
  Vec at = add(add(from, times(to, far)), times(normal, 1e-6));
  double bright = dot(normal, light);
  if (bright < 0 || nearest(at, light, &unused) >= 0) bright = 0;
  Vec sum = times(colour, 0.2 + 0.8 * bright);
  if (depth >= DEEPEST) return sum;
  Vec turned = add(to, times(normal, -2 * dot(to, normal)));
  return add(times(sum, 1 - mirror), times(trace(at, turned, depth + 1), mirror));
}

static unsigned char byte(double v) { return v <= 0 ? 0 : v >= 1 ? 255 : (unsigned char)(v * 255); }

static void *work(void *unused) {
  int columns = rows * 4 / 3;
  unsigned char *line = malloc(3 * (size_t)columns);
  if (!line) exit(1);
  for (;;) {
    pthread_mutex_lock(&lock);
    int row = next_row++;
    pthread_mutex_unlock(&lock);
    if (row >= rows) break;
    for (int column = 0; column < columns; column++) {
      Vec sum = {0, 0, 0};
      for (int part = 0; part < 4; part++) {
        double x = (column + part % 2 * 0.5 - columns / 2.0) / rows;
        double y = (rows / 2.0 - row - part / 2 * 0.5) / rows;
        sum = add(sum, trace((Vec){0, 0.5, -4}, unit((Vec){x, y, 1}), 0));
      }
      line[3 * column] = byte(sum.x / 4);
      line[3 * column + 1] = byte(sum.y / 4);
      line[3 * column + 2] = byte(sum.z / 4);
    }
    if (write(sink, line, 3 * (size_t)columns) < 0) exit(1);
  }
  free(line);
  return unused;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
  double begin = now();
  int threads = 2;
  pthread_t others[MOST_THREADS];
  if (argc > 1) rows = atoi(argv[1]);
  if (argc > 2) threads = atoi(argv[2]);
  sink = open("/dev/null", O_WRONLY);
  if (rows < 1 || rows > MOST_ROWS || threads < 1 || threads > MOST_THREADS || sink < 0) return 2;
  srand(1);
  for (int i = 0; i < SPHERES; i++) {
    double r[7];
    for (int k = 0; k < 7; k++) r[k] = rand() / (double)RAND_MAX;
    spheres[i].radius = 0.15 + 0.3 * r[0];
    spheres[i].centre = (Vec){6 * r[1] - 3, spheres[i].radius - 1 + 2 * r[2], 6 * r[3] - 1};
    spheres[i].colour = (Vec){r[4], r[5], r[6]};
  }
  for (int i = 1; i < threads; i++)
    if (pthread_create(&others[i], 0, work, 0)) return 1;
  work(0);
  for (int i = 1; i < threads; i++) pthread_join(others[i], 0);
  printf("main %.6f\n", now() - begin);
  return 0;
}

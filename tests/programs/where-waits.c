/* Waits for a timer, a child, a thread, a condition and a semaphore, and prints the times in nanoseconds;
 * last that of a wait for a semaphore that the program's end cuts short. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"

/* No tail calls: each function stays on the stack of its waits. */
#define KEEP __asm__ volatile("" ::: "memory")

__attribute__((noinline)) static void nap(void) {
  usleep(150000);
  KEEP;
}

__attribute__((noinline)) static void hatch(void) {
  pid_t child = fork();
  if (!child) {
    execlp("sleep", "sleep", "0.15", (char *)0);
    _exit(1);
  }
  waitpid(child, 0, 0);
  KEEP;
}

static void *sleeper(void *unused) {
  nap();
  return unused;
}

__attribute__((noinline)) static void gather(void) {
  pthread_t t;
  pthread_create(&t, 0, sleeper, 0);
  pthread_join(t, 0);
  KEEP;
}

enum { TIMES = 10 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ready = PTHREAD_COND_INITIALIZER;
static sem_t stock;
static int given;

__attribute__((noinline)) static void give(void) {
  pthread_mutex_lock(&mutex);
  given++;
  pthread_mutex_unlock(&mutex);
  pthread_cond_signal(&ready);
  KEEP;
}

static void *giver(void *unused) {
  for (int i = 0; i < TIMES; i++) {
    usleep(15000);
    give();
  }
  return unused;
}

__attribute__((noinline)) static void take(void) {
  pthread_mutex_lock(&mutex);
  while (!given) pthread_cond_wait(&ready, &mutex);
  given--;
  pthread_mutex_unlock(&mutex);
  KEEP;
}

__attribute__((noinline)) static void fill(void) {
  sem_post(&stock);
  KEEP;
}

static void *filler(void *unused) {
  for (int i = 0; i < TIMES; i++) {
    usleep(15000);
    fill();
  }
  return unused;
}

__attribute__((noinline)) static void draw(void) {
  sem_wait(&stock);
  KEEP;
}

static long stays;

__attribute__((noinline)) static void stay(void) {
  sem_t *never = malloc(sizeof *never);
  sem_init(never, 0, 0);
  stays = now();
  sem_wait(never);
  KEEP;
}

/* A thread without work would only sleep, and be left out. */
enum { WORK = 100 };

/* Waits until the program's end. */
static void *stayer(void *unused) {
  compute(WORK);
  stay();
  return unused;
}

/* Calls a function some times while a thread runs, and prints how long that took. */
static void timed(void (*function)(void), int times, void *(*partner)(void *)) {
  pthread_t t;
  if (partner) pthread_create(&t, 0, partner, 0);
  long start = now();
  while (times--) function();
  printf("%ld\n", now() - start);
  if (partner) pthread_join(t, 0);
}

int main(void) {
  pthread_t t;
  pthread_create(&t, 0, stayer, 0);
  compute(WORK);
  sem_init(&stock, 0, 0);
  timed(nap, 1, 0);
  timed(hatch, 1, 0);
  timed(gather, 1, 0);
  timed(take, TIMES, giver);
  timed(draw, TIMES, filler);
  printf("%ld\n", now() - stays);
  return 0;
}

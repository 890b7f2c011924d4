/* A library and, with MAIN, a program that calls it once for every byte of its input. */
int step(int byte);

#ifdef MAIN
#include <stdio.h>

int main(void) {
  setvbuf(stdin, NULL, _IONBF, 0);
  for (int c; (c = getchar()) != EOF;)
    if (step(c) == '.')
      break;
  return 0;
}
#else
int step(int byte) { return byte; }
#endif

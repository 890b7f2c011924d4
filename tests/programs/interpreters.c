/* A process whose memory looks like that of Ruby 4.0, or with PHP defined like that of PHP 8.5, to a reader of exported
   symbols: it runs `outer`, which calls `inner`. With `circle`, the frames of PHP lead in a circle; with `damaged`, they and the
   names lead nowhere. Offsets are those of the interpreters' sources. */
#include <stdint.h>
#include <string.h>
#include <time.h>

#ifdef PHP

/* zend_string, zend_op_array and zend_execute_data: words by their index. */
typedef struct { uint64_t head, hash, length; char text[32]; } String;
static String php_file = {.hash = 1, .text = "made.php"}, php_names[] = {{.hash = 2, .text = "outer"}, {.hash = 3, .text = "inner"}};
static String php_class = {.text = "Made"};
static uintptr_t class_entry[2] = {0, (uintptr_t)&php_class}, op_arrays[2][32], calls[2][10];
uintptr_t executor_globals[256];
uintptr_t zend_ce_nodiscard;

static void make(int circle, int damaged) {
  for (int i = 0; i < 2; i++) {
    uintptr_t *code = op_arrays[i], *frame = calls[i];
    code[0] = 2;
    code[1] = (uintptr_t)&php_names[i];
    code[2] = (uintptr_t)class_entry;
    code[21] = damaged ? 8 : (uintptr_t)&php_file;
    code[22] = 3 + 4 * i;
    frame[3] = (uintptr_t)code;
    frame[5] = i ? 0 : 0x20000;
    frame[6] = i ? (uintptr_t)calls[0] : damaged ? 64 : circle ? (uintptr_t)calls[1] : 0;
  }
  executor_globals[64] = (uintptr_t)calls[1];
}

#else

/* RString with characters in it, rb_iseq_t and its body, control frames at the end of the stack of an execution context. */
typedef struct { uint64_t flags, class, length; char text[32]; } Text;
static Text ruby_file = {.flags = 5, .text = "made.rb"}, ruby_names[] = {{.flags = 5, .text = "outer"}, {.flags = 5, .text = "inner"}};
static uintptr_t bodies[2][16], iseqs[2][4], stack[1024], context[8], flags[3] = {0x20, 0, 0};
const char ruby_version[] = "4.0.0";
_Thread_local uintptr_t *current;

static void make(int circle, int damaged) {
  (void)circle;
  /* The outermost frame stands for no function. */
  uintptr_t *frame = stack + 1024 - 3 * 7;
  for (int i = 0; i < 2; i++) {
    uintptr_t *body = bodies[i], *iseq = iseqs[i], *at = frame + (1 - i) * 7;
    body[8] = (uintptr_t)&ruby_file;
    body[10] = damaged ? 16 : (uintptr_t)&ruby_names[i];
    body[11] = 3 + 4 * i;
    iseq[2] = damaged && i ? 24 : (uintptr_t)body;
    at[0] = 1;
    at[2] = (uintptr_t)iseq;
    at[4] = (uintptr_t)&flags[i];
  }
  context[0] = (uintptr_t)stack;
  context[1] = 1024;
  context[2] = (uintptr_t)frame;
  current = context;
}

#endif

int main(int argc, char **argv) {
  const char *how = argc > 1 ? argv[1] : "";
  make(!strcmp(how, "circle"), !strcmp(how, "damaged"));
  struct timespec used;
  volatile uint64_t sum = 0;
  do {
    for (int i = 0; i < 1000000; i++) sum = sum * 31 + i;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  } while (!used.tv_sec);
}

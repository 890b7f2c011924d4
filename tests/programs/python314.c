/* A process whose memory looks like CPython 3.14's to a reader of `_PyRuntime`: it runs `outer`, which calls `inner`. With an
   argument, the frames lead in a circle. Members have their names in CPython (Include/internal/pycore_debug_offsets.h). */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

typedef struct {
  char cookie[8];
  uint64_t version, free_threaded;
  struct { uint64_t size, finalizing, interpreters_head; } runtime_state;
  struct {
    uint64_t size, id, next, threads_head, threads_main, gc, imports_modules, sysdict, builtins, ceval_gil;
    uint64_t gil_runtime_state, gil_runtime_state_enabled, gil_runtime_state_locked, gil_runtime_state_holder;
    uint64_t code_object_generation, tlbc_generation;
  } interpreter_state;
  struct {
    uint64_t size, prev, next, interp, current_frame, thread_id, native_thread_id, datastack_chunk, status;
  } thread_state;
  struct { uint64_t size, previous, executable, instr_ptr, localsplus, owner, stackpointer, tlbc_index; } interpreter_frame;
  struct {
    uint64_t size, filename, name, qualname, linetable, firstlineno, argcount, localsplusnames, localspluskinds;
    uint64_t co_code_adaptive, co_tlbc;
  } code_object;
  struct { uint64_t size, ob_type; } pyobject;
  struct { uint64_t size, tp_name, tp_repr, tp_flags; } type_object;
  struct { uint64_t size, ob_item, ob_size; } tuple_object, list_object;
  struct { uint64_t size, used, table, mask; } set_object;
  struct { uint64_t size, ma_keys, ma_values; } dict_object;
  struct { uint64_t size, ob_fval; } float_object;
  struct { uint64_t size, lv_tag, ob_digit; } long_object;
  struct { uint64_t size, ob_size, ob_sval; } bytes_object;
  struct { uint64_t size, state, length, asciiobject_size; } unicode_object;
} DebugOffsets;

/* Compact and of ASCII characters, as bits 5 and 6 of the state tell. */
typedef struct { uint64_t refcount, type, length, hash; uint32_t state, padding; char text[40]; } Text;
typedef struct { uint64_t head; Text *filename, *qualname; uint64_t more; int firstlineno; } Code;
typedef struct Frame { uintptr_t executable; struct Frame *previous; uint64_t more[8]; char owner; } Frame;
typedef struct Thread { struct Thread *next; uint64_t more[4]; Frame *current_frame; uint64_t thread_id; } Thread;
typedef struct Interpreter { struct Interpreter *next; Thread *head; } Interpreter;

__attribute__((visibility("default"))) struct { DebugOffsets offsets; uint64_t more[32]; Interpreter *head; } _PyRuntime;

static Text file = {.state = 0x64, .text = "made.py"}, names[] = {{.state = 0x64, .text = "outer"}, {.state = 0x64, .text = "inner"}};
static Code codes[] = {{.filename = &file, .qualname = &names[0], .firstlineno = 3},
                       {.filename = &file, .qualname = &names[1], .firstlineno = 7}};
/* The lowest bits of references have marks; 3 owns the frame in which the interpreter's function begins. */
static Frame frames[3];
static Thread threads[2];
static Interpreter interpreter;

int main(int argc, char **argv) {
  DebugOffsets *o = &_PyRuntime.offsets;
  (void)argv;
  frames[0] = (Frame){.owner = 3, .previous = argc > 1 ? &frames[2] : 0};
  frames[1] = (Frame){.executable = (uintptr_t)&codes[0] | 1, .previous = &frames[0]};
  frames[2] = (Frame){.executable = (uintptr_t)&codes[1] | 1, .previous = &frames[1]};
  threads[0] = (Thread){.next = &threads[1], .thread_id = 1};
  threads[1] = (Thread){.current_frame = &frames[2], .thread_id = (uint64_t)pthread_self()};
  interpreter = (Interpreter){.head = &threads[0]};
  _PyRuntime.head = &interpreter;
  o->version = 0x030e00f0;
  o->runtime_state.interpreters_head = offsetof(__typeof__(_PyRuntime), head);
  o->interpreter_state.next = offsetof(Interpreter, next);
  o->interpreter_state.threads_head = offsetof(Interpreter, head);
  o->thread_state.next = offsetof(Thread, next);
  o->thread_state.current_frame = offsetof(Thread, current_frame);
  o->thread_state.thread_id = offsetof(Thread, thread_id);
  o->interpreter_frame.previous = offsetof(Frame, previous);
  o->interpreter_frame.executable = offsetof(Frame, executable);
  o->interpreter_frame.owner = offsetof(Frame, owner);
  o->code_object.filename = offsetof(Code, filename);
  o->code_object.qualname = offsetof(Code, qualname);
  o->code_object.firstlineno = offsetof(Code, firstlineno);
  o->unicode_object.asciiobject_size = offsetof(Text, text);
  memcpy(o->cookie, "xdebugpy", 8);
  struct timespec used;
  volatile uint64_t sum = 0;
  do {
    for (int i = 0; i < 1000000; i++) sum = sum * 31 + i;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  } while (!used.tv_sec);
}

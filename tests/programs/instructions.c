/* Executes each of the functions `i_0`, `i_1`, ... (one instruction under test each, then `ret`) with
   known registers, flags, vector and mask registers and memory, and prints a checksum of all of these
   afterwards, or the signal. The test `instructions` of spile generates the functions and probes them.

   Arguments: the first case and the number of cases. With `wait` as the third one, begins when a
   character comes on standard input. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS = 4, BUFFER = 8192, STATE = 4096 };

extern void (*const cases[])(void);
extern const unsigned count;
extern void run(void);

void (*current)(void);
/* rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15, flags */
uint64_t in[17], out[17], own_stack;
_Alignas(64) unsigned char memory[BUFFER], state_in[STATE], state_out[STATE];

/* x87, SSE, AVX, masks and both upper parts of AVX-512. */
__asm__(
    ".text\n.globl run\n.type run, @function\nrun:\n"
    "push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
    "mov %rsp, own_stack(%rip)\n"
    "mov $0xe7, %eax; xor %edx, %edx\n"
    "xrstor64 state_in(%rip)\n"
    "push in+128(%rip); popf\n"
    "mov in(%rip), %rax; mov in+8(%rip), %rcx; mov in+16(%rip), %rdx; mov in+24(%rip), %rbx\n"
    "mov in+40(%rip), %rbp; mov in+48(%rip), %rsi; mov in+56(%rip), %rdi\n"
    "mov in+64(%rip), %r8; mov in+72(%rip), %r9; mov in+80(%rip), %r10; mov in+88(%rip), %r11\n"
    "mov in+96(%rip), %r12; mov in+104(%rip), %r13; mov in+112(%rip), %r14; mov in+120(%rip), %r15\n"
    "call *current(%rip)\n"
    "mov %rsp, out+32(%rip); mov own_stack(%rip), %rsp\n"
    "pushf; pop out+128(%rip)\n"
    "mov %rax, out(%rip); mov %rcx, out+8(%rip); mov %rdx, out+16(%rip); mov %rbx, out+24(%rip)\n"
    "mov %rbp, out+40(%rip); mov %rsi, out+48(%rip); mov %rdi, out+56(%rip)\n"
    "mov %r8, out+64(%rip); mov %r9, out+72(%rip); mov %r10, out+80(%rip); mov %r11, out+88(%rip)\n"
    "mov %r12, out+96(%rip); mov %r13, out+104(%rip); mov %r14, out+112(%rip); mov %r15, out+120(%rip)\n"
    "cld\n"
    "mov $0xe7, %eax; xor %edx, %edx\n"
    "xsave64 state_out(%rip)\n"
    "fninit; ldmxcsr default_mxcsr(%rip)\n"
    "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n"
    "ret\n.size run, . - run\n"
    ".section .rodata\ndefault_mxcsr: .long 0x1f80\n.text\n");

static sigjmp_buf back;

static void caught(int number) { siglongjmp(back, number); }

static uint64_t random_state;

static uint64_t next(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

static void prepare(unsigned seed) {
  static const uint64_t flags[SEEDS] = {0x202, 0x202 | 0x8d5, 0x202 | 0x41, 0x202 | 0x884};
  random_state = 0x9e3779b97f4a7c15u * (seed + 1);
  for (int i = 0; i < 16; i++) in[i] = seed == 0 ? next() & 0xff : next();
  in[3] = (uint64_t)memory + 4096; /* rbx, the address of memory operands */
  in[6] = (uint64_t)memory + 2048; /* rsi and rdi, those of string instructions */
  in[7] = (uint64_t)memory + 3072;
  in[1] &= 7; /* rcx, a count */
  in[16] = flags[seed];
  for (int i = 0; i < BUFFER; i += 8) {
    uint64_t word = next();
    memcpy(memory + i, &word, 8);
  }
  /* Every component, its contents from now on as in memory. */
  for (int i = 576; i < STATE; i++) state_in[i] = (unsigned char)(next() >> 11);
  for (int i = 160; i < 416; i++) state_in[i] = (unsigned char)(next() >> 11);
  memset(state_in + 512, 0, 64);
  state_in[512] = 0xe7;
  uint16_t control = 0x37f;
  memcpy(state_in, &control, 2);
  uint32_t mxcsr = 0x1f80;
  memcpy(state_in + 24, &mxcsr, 4);
  /* Register 4, whose words are indexes of gathers. */
  unsigned eax = 13, ebx, ecx = 6, edx;
  __asm__("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
  struct { unsigned at, size; } parts[] = {{160 + 4 * 16, 16}, {576 + 4 * 16, 16}, {ebx + 4 * 32, 32}};
  for (int part = 0; part < 3; part++)
    for (unsigned i = 0; i < parts[part].size && parts[part].at + i < STATE; i++)
      state_in[parts[part].at + i] = i % 8 ? 0 : (unsigned char)(i * 8);
}

static uint64_t sum(uint64_t hash, const void *from, size_t size) {
  for (const unsigned char *p = from; size--; p++) hash = (hash ^ *p) * 0x100000001b3u;
  return hash;
}

int main(int argc, char **argv) {
  unsigned first = argc > 1 ? atoi(argv[1]) : 0;
  unsigned end = argc > 2 ? first + atoi(argv[2]) : count;
  static unsigned char stack[65536];
  stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
  sigaltstack(&other, NULL);
  struct sigaction action = {.sa_handler = caught, .sa_flags = SA_ONSTACK | SA_NODEFER};
  int signals[] = {SIGILL, SIGSEGV, SIGFPE, SIGTRAP, SIGBUS};
  for (int i = 0; i < 5; i++) sigaction(signals[i], &action, NULL);
  if (argc > 3) {
    puts("ready");
    fflush(stdout);
    getchar();
  }
  for (unsigned i = first; i < end && i < count; i++) {
    uint64_t hash = 0xcbf29ce484222325u;
    int number = sigsetjmp(back, 1);
    if (number == 0) {
      for (unsigned seed = 0; seed < SEEDS; seed++) {
        prepare(seed);
        memset(state_out, 0, sizeof state_out);
        current = cases[i];
        run();
        out[4] -= own_stack;
        hash = sum(hash, out, sizeof out);
        hash = sum(hash, memory, sizeof memory);
        /* Without the addresses of the last x87 instruction and the header. */
        hash = sum(hash, state_out, 6);
        hash = sum(hash, state_out + 24, 4);
        hash = sum(hash, state_out + 32, 384);
        hash = sum(hash, state_out + 576, STATE - 576);
      }
      printf("%u %llx\n", i, (unsigned long long)hash);
    } else {
      printf("%u signal %d\n", i, number);
    }
  }
  return 0;
}

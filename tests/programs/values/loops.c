// Locals that optimisers keep in registers, split, fold and recompute.
//: $a ~ a
//: $b ~ b
//: $small ~ small
//: $byte ~ byte
//: $half ~ half
//: $folded ~ folded
//: $flag ~ flag
//: $n ~ n
//: $i ~ i
//: $pair->x ~ pair.x
//: $pair->y ~ pair.y
//: $three->a ~ three.a
//: $three->b ~ three.b
//: $three->c ~ three.c
//: $one->only ~ one.only
//: $to->x ~ to->x
//: $to->y ~ to->y
//: $cursor[0] ~ cursor[0]
//: $cursor[1] ~ cursor[1]
//: $constants[2] ~ constants[2]
//: $most ~ most
//: $quotient ~ quotient
//: $wide$ ~ wide
//: $byte_constant ~ byte_constant
//: $int_constant ~ int_constant
//: $short_constant ~ short_constant
//: $large_constant ~ large_constant
//: $negative_constant ~ negative_constant
//: $negative_char ~ negative_char
//: $kind ~ kind
//: $minus$ ~ minus
//: $row[200] ~ row[200]
//: $row$ ~ "[5, 0, 0, 0, 0, 0, 0, 0, ...]"
//: $string$ ~ "long"
struct pair {
  int x, y;
};
struct three {
  char a;
  short b;
  long c;
};
struct one {
  unsigned char only;
};

enum kind { SMALL = 1, LARGE = 200 } __attribute__((packed));

long sum;
int row[201] = {5, [200] = 6};
unsigned char string[250] = "long";
__attribute__((noinline)) static long mix(long n) {
  __asm__ volatile("" : "+r"(n));
  return n;
}
static inline __attribute__((always_inline)) long both(const struct pair *to) {
  long part = mix(to->x);
  sum += part + to->y;
  return part;
}

__attribute__((noinline)) static long look(long a, int b, const int *numbers, int n) {
  static const int constants[3] = {3, 6, 9};
  struct pair pair = {(int)mix(3), b + 2};
  struct three three = {(char)mix(-3), (short)(a * 3), a << 20};
  struct one one = {(unsigned char)mix(250)};
  const int *cursor = numbers;
  int folded = 1234;
  unsigned char byte_constant = 200;
  int int_constant = 130, short_constant = 40000;
  long large_constant = 3000000000;
  int negative_constant = -56;
  signed char negative_char = -56;
  enum kind kind = LARGE;
  __int128 minus = -5;
  long total = 0;
  for (int i = 0; i < n; i++, cursor++) {
    short small = (short)(b * 1000 + i);
    unsigned char byte = (unsigned char)(a + i * 90);
    unsigned half = (unsigned)a / 2 + (unsigned)i;
    _Bool flag = (i & 1) != 0;
    int most = b > i * 50 ? b : i * 50;
    long quotient = a / (b + i + 1);
    __int128 wide = (__int128)a * 3;
    total += mix(i); // here
    total += both(&pair);
    total += small + byte + half + flag + most + quotient + *cursor + cursor[1] + (long)wide;
    pair.y += (int)mix(1);
    three.c++;
    total += byte_constant + int_constant + short_constant + large_constant + negative_constant + negative_char + (int)kind + (long)minus;
  }
  return total + three.a + three.b + three.c + one.only + folded + constants[n % 3];
}

int main(void) {
  int numbers[5] = {10, 20, 30, 40, 50};
  __asm__ volatile("" : : "r"(numbers) : "memory");
  return look(mix(777), (int)mix(33), numbers, (int)mix(3)) == 1;
}

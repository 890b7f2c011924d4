// Names in C++: namespaces, overloads, methods.
namespace shop {
struct Basket {
  int sum = 0;
  __attribute__((noinline)) int put(int price) { return sum += price; }
};
__attribute__((noinline)) int put(Basket &b, int price) { return b.put(price) + 1; }
} // namespace shop

int main() {
  shop::Basket b;
  return shop::put(b, 12) == 13 ? 0 : 1;
}

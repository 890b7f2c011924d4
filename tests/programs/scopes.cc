// A program with names in scopes, for the cases of dwarf.toml.
namespace outer {
struct Base {
  int b = 4;
  virtual ~Base() {}
  __attribute__((noinline)) virtual int twice(int x) { return 2 * x + b; }
};
template <class T> struct Derived : Base {
  T t;
  explicit Derived(T t) : t(t) {}
  __attribute__((noinline)) int twice(int x) override { return static_cast<int>(x + t); }
};
}  // namespace outer

int main(int argc, char **) {
  outer::Derived<long> d(40);
  outer::Base plain;
  outer::Base *all[] = {&d, &plain};
  int sum = 0;
  for (auto *b : all) sum += b->twice(argc);
  return sum == 0;
}

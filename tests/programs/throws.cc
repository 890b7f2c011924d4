// `throws COUNT`: throws and catches exceptions, at which libstdc++ has markers.
#include <cstdlib>
#include <stdexcept>

int main(int argc, char **argv)
{
    int count = argc > 1 ? std::atoi(argv[1]) : 1, caught = 0;
    for (int i = 0; i < count; i++) {
        try {
            throw std::runtime_error("a");
        } catch (const std::exception &) {
            caught++;
        }
    }
    return caught == count ? 0 : 1;
}

/* Page faults that wait: the main thread touches five pages, and another thread provides each page 50 ms after the
   fault. Exits with status 77 if the kernel refuses userfaultfd. */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGES = 5 };
static long page;

static void *provides(void *of) {
  int fd = *(int *)of;
  struct uffd_msg asked;
  for (int i = 0; i < PAGES && read(fd, &asked, sizeof asked) == sizeof asked; i++) {
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    struct uffdio_zeropage zero = {.range = {asked.arg.pagefault.address & -page, page}};
    if (ioctl(fd, UFFDIO_ZEROPAGE, &zero)) _exit(1);
  }
  return NULL;
}

int main(void) {
  page = sysconf(_SC_PAGESIZE);
  int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
  struct uffdio_api api = {.api = UFFD_API};
  if (fd < 0 || ioctl(fd, UFFDIO_API, &api)) return 77;
  volatile char *memory = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct uffdio_register all = {.range = {(unsigned long)memory, PAGES * page}, .mode = UFFDIO_REGISTER_MODE_MISSING};
  if (memory == MAP_FAILED || ioctl(fd, UFFDIO_REGISTER, &all)) return 77;
  pthread_t helper;
  if (pthread_create(&helper, NULL, provides, &fd)) return 1;
  for (long i = 0; i < PAGES; i++) (void)memory[i * page];
  return pthread_join(helper, NULL) != 0;
}

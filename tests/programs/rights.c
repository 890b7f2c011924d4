/* Calls a function; with an argument, another user then executes this program, which has the
   set-user-ID bit. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) void called(void) { __asm__ volatile(""); }

int main(int argc, char **argv)
{
	called();
	if (argc > 1 && fork() == 0) {
		if (setreuid(65534, 65534))
			exit(1);
		execl(argv[0], argv[0], NULL);
		exit(1);
	}
	wait(NULL);
	return 0;
}

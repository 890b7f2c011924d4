/* A kernel that never runs: tests read the places and variables in its debugging information. */
struct list {
	struct list *next;
	int value;
};

int threshold = 3;
static int calls;

static inline __attribute__((always_inline)) int limited(int v)
{
	int limit = threshold;
	return v > limit ? limit : v;
}

__attribute__((noipa)) int sum_list(struct list *first, int most)
{
	int total = 0;
	for (struct list *at = first; at && most; at = at->next, most--) {
		int part = limited(at->value);
		total += part;
	}
	calls++;
	return total;
}

__attribute__((noipa)) int begin_sum(struct list *first)
{
	return sum_list(first, 10) + limited(calls);
}

void _stext(void)
{
	struct list one = { 0, 4 };
	begin_sum(&one);
}

"""As shares.c."""

import sys
from time import process_time


def heavy(n):
    s = 1
    for i in range(n):
        s = (s * 31 + i) % 1000003
    return s


def light(n):
    s = 2
    for i in range(n):
        s = (s * 17 + i) % 1000033
    return s


spent, end, a = [0, 0], float(sys.argv[1]), process_time()
# Rounds of different lengths: equal ones can be in step with the samples.
unit = 10000
while a < end:
    unit = 5000 + (unit + 3571) % 10000
    heavy(3 * unit)
    b = process_time()
    spent[0] += b - a
    light(unit)
    a = process_time()
    spent[1] += a - b
print(spent[0] / sum(spent))

# As shares.c.

def heavy(n)
  s = i = 1
  while i < n
    s = (s * 31 + i) % 1000003
    i += 1
  end
  s
end

def light(n)
  s = i = 2
  while i < n
    s = (s * 17 + i) % 1000033
    i += 1
  end
  s
end

def now = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)

spent = [0, 0]
last = ARGV[0].to_f
a = now
# Rounds of different lengths: equal ones can be in step with the samples.
unit = 10_000
while a < last
  unit = 5_000 + (unit + 3_571) % 10_000
  heavy(3 * unit)
  b = now
  spent[0] += b - a
  light(unit)
  a = now
  spent[1] += a - b
end
puts spent[0] / spent.sum

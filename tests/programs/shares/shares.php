<?php
// As shares.c.

function heavy($n) {
  for ($s = 1, $i = 0; $i < $n; $i++) $s = ($s * 31 + $i) % 1000003;
  return $s;
}

class Lamp {
  static function light($n) {
    for ($s = 2, $i = 0; $i < $n; $i++) $s = ($s * 17 + $i) % 1000033;
    return $s;
  }
}

function now() {
  $used = getrusage();
  return $used["ru_utime.tv_sec"] + $used["ru_stime.tv_sec"] +
         ($used["ru_utime.tv_usec"] + $used["ru_stime.tv_usec"]) / 1e6;
}

$spent = [0, 0];
$end = (float)$argv[1];
$a = now();
// Rounds of different lengths: equal ones can be in step with the samples.
$unit = 100000;
while ($a < $end) {
  $unit = 50000 + ($unit + 35710) % 100000;
  heavy(3 * $unit);
  $b = now();
  $spent[0] += $b - $a;
  Lamp::light($unit);
  $a = now();
  $spent[1] += $a - $b;
}
echo $spent[0] / array_sum($spent), "\n";

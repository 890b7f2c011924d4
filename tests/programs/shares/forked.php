<?php
// As forked.py, without a thread.

if (pcntl_fork() || pcntl_fork()) {
  pcntl_wait($status);
  exit;
}
echo getmypid(), "\n";
fgets(STDIN);
require __DIR__ . "/shares.php";

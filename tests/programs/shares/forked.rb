# As forked.py.

def child = Process.wait(fork { yield })

child do
  child do
    puts Process.pid
    $stdout.flush
    $stdin.gets
    Thread.new { load File.join(__dir__, "shares.rb") }.join
  end
end

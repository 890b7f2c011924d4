# Waits in each way that blocks a thread of Ruby for 0.3 s.
def rest = sleep(0.3)
def take(queue) = queue.pop
def enter(lock) = lock.synchronize { 1 }

rest
queue = Queue.new
giver = Thread.new { sleep 0.3; queue << 1 }
take(queue)
giver.join
lock = Mutex.new
ready = Queue.new
holder = Thread.new { lock.synchronize { ready << 1; sleep 0.3 } }
ready.pop
enter(lock)
holder.join

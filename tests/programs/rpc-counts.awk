# Compares what the probes counted with what the client says it sent: operations of version 3, by their numbers.
BEGIN {
	split("GETATTR SETATTR LOOKUP ACCESS READLINK READ WRITE CREATE MKDIR SYMLINK MKNOD REMOVE RMDIR RENAME LINK READDIR READDIRPLUS FSSTAT FSINFO PATHCONF COMMIT", operation)
}
NF == 2 && /^[A-Z]+ [0-9]+$/ { client[$1] = $2; all += $2 }
$1 == "called" && $2 == 100003 { called[$3] = $4 }
$1 == "tasks" && $2 == 100003 && $3 == 3 { tasks = $4; released = $5; runs = $6 }
$1 == "served" && $2 == 100003 && $3 == 3 { name = operation[$4]; served[name] = $5; asked[name] = $6; sent[name] = $7 }
END {
	for (name in client) {
		n = client[name]
		server = (served[name] == n && asked[name] == n && sent[name] == n) ? "served" : "lost"
		how = (called[name] == n) ? "called" : (called[name] + 0 == 0) ? "sent" : "wrong"
		print name, server, how
	}
	enough = (runs >= all) ? "run" : "not run"
	print "tasks", (tasks == all) ? "made" : tasks "/" all, (released == all) ? "released" : released "/" all, enough
}

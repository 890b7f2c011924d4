# Compares what the probes of scsi.stp printed with the disk's number and its counters.
function value(name) {
	match($0, " " name "=[^ ]*")
	return substr($0, RSTART + length(name) + 2, RLENGTH - length(name) - 2)
}
$1 == "disk" { split($2, number, ":") }
$1 == "begin" { writes = -$6; sectors = -$8 }
$1 == "end" { writes += $6; sectors += $8 }
/^ioentry / { entries[value("disk_major") ":" value("disk_minor")]++ }
/^iodispatching / && / data_direction=1 / && / dev_id=1 / && / lun=1 / { passed++; bytes += value("request_bufflen") }
/^iodone / && / data_direction=1 / && / dev_id=1 / && / lun=1 / { done++ }
/^iocompleted / && / data_direction=1 / && / dev_id=1 / && / lun=1 / { completed++; good += value("goodbytes") }
/ begun=0$/ { unknown++ }
END {
	print "disk", (entries[number[1] ":" number[2]] >= 5) ? "found" : "not found"
	print "writes", (writes == passed && writes == done && writes == completed) ? writes : writes " " passed " " done " " completed
	print "bytes", (sectors * 512 == bytes && bytes == good) ? bytes : sectors * 512 " " bytes " " good
	print "unknown", unknown + 0
}

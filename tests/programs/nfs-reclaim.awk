# Compares what the probes of nfs-reclaim.stp printed with the file and its pages: `kept PAGES reclaimed PAGES ino INODE dev
# DEVICE`.
function value(name) {
	match($0, " " name "=[^ ]*")
	return substr($0, RSTART + length(name) + 2, RLENGTH - length(name) - 2)
}
{ line[NR] = $0 }
$1 == "kept" { gone = $4; inode = $6; device = $8 }
END {
	for (i = 1; i <= NR; i++) {
		$0 = line[i]
		if (value("ino") != inode || value("dev") != device) continue
		page = value("index") + 0
		if (page < 0 || page > 63) odd++
		if ($1 == "vfs.remove_from_page_cache") {
			if (value("argstr") != inode || value("devname") != "N/A") odd++
			# Some are read again, so they are removed twice.
			if (!(page in removed)) pages++
			removed[page] = 1
		}
	}
	print "removed", (gone > 0 && pages >= gone && !odd) ? "agree" : pages + 0 " " gone " " odd
}

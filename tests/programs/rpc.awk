# Compares what the probes of rpc.stp printed with the counters of the client and the server, and with open ports.
function value(name) {
	match($0, " " name "=[^ ]*")
	return substr($0, RSTART + length(name) + 2, RLENGTH - length(name) - 2)
}
# mountstats: all operations of version 3.
/^calls / { client = $2 " " $4 " " $6 " " $8 }
/^sunrpc.clnt.shutdown_client / && / progname=nfs / && / vers=3$/ {
	calls += value("om_ops"); transmissions += value("om_ntrans")
	sent += value("om_bytes_sent"); received += value("om_bytes_recv")
	if (value("om_execute") + 0 < value("om_rtt") + 0 || value("om_rtt") + 0 <= 0) times = "wrong"
}
# /proc/net/rpc/nfsd: requests, connections; valid, bad in any way, in their form, by their user.
$1 == "net" { service = $2 " " $5 }
$1 == "rpc" { service = service " " $2 " " $4 " " $5 }
/^sunrpc.svc.destroy / && / sv_name=nfsd / {
	destroyed = value("netcnt") " " value("netcpconn") " " value("rpccnt") " " value("rpcbadfmt") " " value("rpcbadauth")
}
# The number of a call is the same at both ends.
/^sunrpc.clnt.restart_call / { again = value("xid") }
/^sunrpc.clnt.call_sync / && / procname=FSINFO / && / vers=3 / { following = value("xid") }
/^sunrpc.svc.process / { begun[value("rq_xid")] = value("rq_prog") " " value("rq_vers") " " value("rq_proc") }
/^sunrpc.svc.send / { ended[value("rq_xid")] = value("rq_prog") " " value("rq_vers") " " value("rq_proc") }
# Services over TCP listen at the ports that they register.
/^sunrpc.svc.register / && / prot=6 / && value("port") + 0 > 0 { registered[sprintf("%04X", value("port"))] = 1 }
$4 == "0A" { split($2, place, ":"); open[place[2]] = 1 }
END {
	mine = calls " " transmissions " " sent " " received
	print "client", (mine == client) ? "agrees" : mine " / " client, (times == "") ? "in time" : times
	print "server", (destroyed == service) ? "agrees" : destroyed " / " service
	print "again", begun[again], "/", ended[again]
	print "following", begun[following]
	for (id in ended) if (begun[id] != ended[id]) differ++
	print "requests", differ + 0, "differ"
	for (port in registered) { ports++; if (!(port in open)) closed++ }
	print "ports", (ports > 0) ? "open" : "none", closed + 0, "closed"
}

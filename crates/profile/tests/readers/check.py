"""Reads an export with the program that the format is for, and prints what it found as JSON.

python3 check.py KIND PATH [SCHEMA]
"""

import collections
import json
import sys


def graph(gf):
    """Sums of a Hatchet graph by name: exclusive time, and the inclusive time of the roots."""
    one = gf.copy()
    if len(one.dataframe.index.names) > 1:
        one.drop_index_levels()  # pictures are of one rank and thread, or of all together
    one.tree()
    frame = gf.dataframe.reset_index()
    sums = collections.Counter()
    for name, time in zip(frame["name"], frame["time"]):
        sums[name] += int(time)
    roots = set(gf.graph.roots)
    inclusive = frame[frame["node"].isin(roots)]["time (inc)"]
    lines = {n.frame["name"]: n.frame.get("line") for n in gf.graph.traverse()}
    return {"exclusive": sums, "inclusive": int(inclusive.sum()), "lines": lines}


def tau(path):
    import hatchet

    gf = hatchet.GraphFrame.from_tau(path)
    out = graph(gf)
    frame = gf.dataframe.reset_index()
    # Threads without a function have a row without its line.
    out["lines"] = {n: int(x) for n, x in frame.fillna({"line": 0}).groupby("name")["line"].max().items()}
    return out


def hatchet(path):
    import hatchet

    with open(path) as f:
        return graph(hatchet.GraphFrame.from_json(f.read()))


def hatchet_literal(path):
    import hatchet

    with open(path) as f:
        return graph(hatchet.GraphFrame.from_literal(json.load(f)))


def speedscope(path, schema):
    import jsonschema

    with open(path) as f:
        value = json.load(f)
    with open(schema) as f:
        jsonschema.validate(value, json.load(f))
    sums = collections.Counter()
    frames = value["shared"]["frames"]
    for profile in value["profiles"]:
        for sample, weight in zip(profile["samples"], profile["weights"]):
            sums[frames[sample[-1]]["name"]] += weight
    return {"exclusive": sums}


def otf2(path):
    import otf2

    sums = collections.Counter()
    regions = collections.Counter()
    kinds = {}
    paths = collections.Counter()
    locations = {}
    events = 0
    with otf2.reader.open(path + "/traces.otf2") as trace:
        for location in trace.definitions.locations:
            group = location.group
            node = group.system_tree_parent
            name = f"{node.name}/{group.name}/{location.name}"
            locations[name] = location.number_of_events
        open_at = collections.defaultdict(list)
        for location, event in trace.events:
            events += 1
            if isinstance(event, otf2.events.Enter):
                within = open_at[location]
                # Off its processor a thread can be in a call, everything can be in a region.
                assert (
                    not within
                    or event.region.name.startswith("(")
                    or is_region(within[-1][0])
                )
                within.append((event.region, event.time))
                kinds[event.region.name] = kind(event.region)
                paths[" > ".join(r.name for r, _ in within)] += 1
            else:
                region, start = open_at[location].pop()
                assert region == event.region
                sums[event.region.name] += event.time - start
                place = f"{event.region.source_file}:{event.region.begin_line_number}"
                regions[f"{event.region.name} {place}"] += 1
        assert not any(open_at.values())
        clock = trace.definitions.clock_properties
        assert clock.timer_resolution == 1_000_000_000
    return {
        "exclusive": sums,
        "locations": locations,
        "regions": regions,
        "events": events,
        "kinds": kinds,
        "paths": paths,
    }


def kind(region):
    """Its paradigm and role."""
    return f"{region.paradigm} {region.region_role}".replace("Paradigm.", "").replace(
        "RegionRole.", ""
    )


def is_region(region):
    return kind(region).startswith(("OPENMP", "MPI")) or kind(region) == "USER CODE"


def chrome(path):
    """As the description of the trace event format has it."""
    with open(path) as f:
        events = json.load(f)["traceEvents"]
    sums = collections.Counter()
    kinds = collections.Counter()
    threads = collections.defaultdict(list)
    names = []
    unfinished = 0
    for event in events:
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            names.append(event["args"]["name"])
            continue
        assert event["ph"] == "X" and event["ts"] >= 0 and event["dur"] >= 0
        assert isinstance(event["name"], str) and isinstance(event["cat"], str)
        sums[event["name"].split(" (")[0] or event["name"]] += round(event["dur"] * 1000)
        kinds[event["cat"].split(",")[0]] += 1
        threads[event["pid"], event["tid"]].append(event)
        if "unfinished" in event["cat"].split(","):
            assert event["args"]["unfinished"] is True and "ret" not in event["args"]
            unfinished += 1
    paths = collections.Counter()
    for events in threads.values():
        # Events of kind X are within each other, or apart. (Times are decimals of microseconds.)
        inside = []
        for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
            begin, end = (round(t * 1000) for t in (event["ts"], event["ts"] + event["dur"]))
            while inside and inside[-1][1] <= begin:
                inside.pop()
            assert not inside or end <= inside[-1][1] + 1, (event, inside)
            inside.append((event["name"], end))
            paths[" > ".join(name for name, _ in inside)] += 1
    return {
        "exclusive": sums,
        "names": names,
        "unfinished": unfinished,
        "kinds": kinds,
        "paths": paths,
    }


KINDS = {
    "tau": tau,
    "hatchet": hatchet,
    "hatchet-literal": hatchet_literal,
    "speedscope": speedscope,
    "otf2": otf2,
    "chrome": chrome,
}

if __name__ == "__main__":
    json.dump(KINDS[sys.argv[1]](*sys.argv[2:]), sys.stdout)

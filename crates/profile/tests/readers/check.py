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
    begun = {}
    wakeups = []
    for event in events:
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            names.append(event["args"]["name"])
            continue
        if event["ph"] == "s":
            assert event["id"] not in begun
            begun[event["id"]] = event
            continue
        if event["ph"] == "f":
            # Without "e", the end belongs to the next event of kind X.
            begin = begun.pop(event["id"])
            assert event["bp"] == "e" and event["ts"] == begin["ts"]
            assert all(event[key] == begin[key] for key in ("name", "cat", "pid"))
            wakeups.append((begin["tid"], event["tid"]))
            continue
        assert event["ph"] == "X" and event["ts"] >= 0 and event["dur"] >= 0
        assert isinstance(event["name"], str) and isinstance(event["cat"], str)
        sums[event["name"].split(" (")[0] or event["name"]] += round(event["dur"] * 1000)
        kinds[event["cat"].split(",")[0]] += 1
        threads[event["pid"], event["tid"]].append(event)
        if "unfinished" in event["cat"].split(","):
            assert event["args"]["unfinished"] is True and "ret" not in event["args"]
            unfinished += 1
    assert not begun
    paths = collections.Counter()
    for events in threads.values():
        # Events of kind X are within each other, or apart. (Times are decimals of microseconds.)
        inside = []
        for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
            begin, end = (round(t * 1000) for t in (event["ts"], event["ts"] + event["dur"]))
            while inside and inside[-1][1] <= begin:
                last = inside.pop()[2]
                # What follows at once is apart also in readers that add decimals.
                assert last["dur"] == 0 or event["ts"] - last["ts"] - last["dur"] > 0.0005, (last, event)
            assert not inside or end <= inside[-1][1] + 1, (event, inside)
            inside.append((event["name"], end, event))
            paths[" > ".join(name for name, *_ in inside)] += 1
    return {
        "exclusive": sums,
        "names": names,
        "unfinished": unfinished,
        "kinds": kinds,
        "paths": paths,
        "wakeups": wakeups,
    }


def otlp(path):
    from opentelemetry.proto.profiles.v1development import profiles_pb2 as proto

    with open(path, "rb") as f:
        content = f.read()
    data = proto.ProfilesData.FromString(content)
    data.DiscardUnknownFields()
    assert data.ByteSize() == len(content)
    tables = data.dictionary
    strings = tables.string_table
    for table, _ in tables.ListFields():
        values = getattr(tables, table.name)
        # The first is empty, and each is there once.
        empty = values[0] if table.name == "string_table" else values[0].SerializeToString()
        assert not empty, (table.name, values[0])
        texts = [v if isinstance(v, str) else v.SerializeToString() for v in values]
        assert len(set(texts)) == len(texts), table.name

    def attributes(indices):
        pairs = (tables.attribute_table[i] for i in indices)
        values = {strings[p.key_strindex]: p.value for p in pairs}
        return {key: getattr(v, v.WhichOneof("value")) for key, v in values.items()}

    def frame(index):
        location = tables.location_table[index]
        function = tables.function_table[location.lines[0].function_index]
        binary = strings[tables.mapping_table[location.mapping_index].filename_strindex]
        kind = attributes(location.attribute_indices).get("profile.frame.type")
        assert (kind == "kernel") == binary.startswith("[kernel"), (kind, binary)
        name = strings[function.name_strindex]
        return name, strings[function.filename_strindex], location.lines[0].line, binary

    out = collections.defaultdict(collections.Counter)
    for resource in data.resource_profiles:
        of = {a.key: a.value for a in resource.resource.attributes}
        title = of["service.instance.id"].string_value
        assert resource.scope_profiles[0].scope.name == "spile"
        for profile in resource.scope_profiles[0].profiles:
            kind = strings[profile.sample_type.type_strindex]
            unit = strings[profile.sample_type.unit_strindex]
            assert (kind, unit) in [("wall", "nanoseconds"), ("calls", "count")]
            for sample in profile.samples:
                (value,) = sample.values
                stack = tables.stack_table[sample.stack_index]
                frames = [frame(i) for i in stack.location_indices]
                name = frames[0][0] if frames else "?"
                if kind == "calls":
                    out["calls"][title] += value
                    continue
                said = attributes(sample.attribute_indices)
                out["exclusive"][name] += value
                out["states"][said.get("state", "")] += value
                out["threads"][f"{title} {said['thread.id']} {said['thread.name']}"] += value
                for name in {f[0] for f in frames}:
                    out["inclusive"][name] += value
                for name in {f"{f[0]} {f[1]}:{f[2]} {f[3]}" for f in frames}:
                    out["places"][name] += value
    return out


KINDS = {
    "tau": tau,
    "hatchet": hatchet,
    "hatchet-literal": hatchet_literal,
    "speedscope": speedscope,
    "otf2": otf2,
    "chrome": chrome,
    "otlp": otlp,
}

if __name__ == "__main__":
    json.dump(KINDS[sys.argv[1]](*sys.argv[2:]), sys.stdout)

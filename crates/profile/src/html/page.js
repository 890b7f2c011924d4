// The page: what matters first, then the pictures, then the tables.

// A text in which `names` between grave accents are set as such.
function prose(parent, text) {
  text.split("`").forEach((part, i) => {
    if (part) i % 2 ? make("code", parent, part) : parent.append(part);
  });
}

// The command, what was found, and what is known of the whole.
function head() {
  const box = document.getElementById("head");
  make("h1", box, data.head.command);
  make("p", box, data.head.facts, { className: "facts" });
  if (data.failed) make("p", box, data.failed, { className: "bad" });
  // Losses that can change what is said here.
  if (data.lossesMatter) for (const [what, n] of Object.entries(report.lost)) make("p", box, `Lost: ${figures(n)} ${what}`, { className: "bad" });
  const said = make("ol", box, null, { className: "sentences" });
  for (const [i, text] of data.head.sentences.entries()) {
    const place = i < data.head.places ? report.places[i] : null;
    const line = make("li", said);
    const [share, rest] = [text.slice(0, text.indexOf(" ")), text.slice(text.indexOf(" "))];
    const mark = make("b", line, share);
    mark.style.setProperty("--state", STATES[place ? stateOfPlace(place) : IDLE].colour);
    const at = rest.indexOf(": ") + 1;
    make("span", line, rest.slice(0, at), { className: "of" });
    prose(make("span", line, null, { className: "what" }), rest.slice(at));
    const search = place && searchFor(place);
    if (search) {
      line.tabIndex = 0;
      line.title = "show in the flame graph";
      line.addEventListener("click", () => graph?.show(search));
      line.addEventListener("keydown", event => { if (event.key === "Enter") graph?.show(search); });
    }
  }
  const facts = make("ul", box, null, { className: "lines" });
  for (const line of data.head.lines) {
    const row = make("li", facts);
    const at = line.indexOf(": ") + 1;
    make("span", row, line.slice(0, at), { className: "soft" });
    prose(row, line.slice(at));
  }
}

// The state of a place, and its name there.
const idle = place => place.part === "blocked" && ["work", "events"].includes(place.waits_for);
const stateOfPlace = place => place.lock ? LOCK : idle(place) ? IDLE : stateOf(place.part);
function doing(place) {
  const state = STATES[stateOfPlace(place)].name;
  if (place.barrier) return `at a barrier: ${state}`;
  return place.part === "blocked" && place.waits_for && !place.lock ? `${state}: ${place.waits_for}` : state;
}

// The regular expression that finds a place in the flame graph.
function searchFor(place) {
  const part = data.parts.find(p => p.key === place.part);
  const name = place.function || place.location || place.call || `(${part.name})`;
  return place.function ? exactly(name) : literal(name || "");
}
const literal = text => text.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&");
const exactly = name => `^${literal(name)}$`;

// The meaning of each colour with its share, at the top of the screen always. A click hides or shows a state in
// the flame graph.
function legend(change, shown) {
  const box = document.getElementById("legend");
  const entries = STATES.map(({ name }, i) => {
    const entry = make("button", box, null, { type: "button" });
    swatch(entry, i);
    entry.append(name + " ");
    const share = make("span", entry, "");
    entry.setAttribute("aria-pressed", "true");
    entry.addEventListener("click", () => {
      shown[i] = !shown[i];
      entry.setAttribute("aria-pressed", shown[i]);
      change();
    });
    return { entry, share };
  });
  if (change) for (const [text, title, on] of [["on a CPU", "only time on a processor", s => s <= TAKEN], ["off", "only time off a processor", s => s > TAKEN && s < RESIDUAL], ["all", "all time", () => true]]) {
    button(box, text, () => {
      entries.forEach(({ entry }, i) => {
        shown[i] = on(i);
        entry.setAttribute("aria-pressed", shown[i]);
      });
      change();
    }, { title });
  }
  return {
    update(sums) {
      const whole = sum(ORDER.map(s => sums[s]));
      entries.forEach(({ entry, share }, i) => {
        share.textContent = percent(ratio(sums[i], whole));
        entry.title = `${STATES[i].name}: ${time(sums[i])}; click to hide or show it in the flame graph`;
        entry.hidden = !sums[i];
      });
    },
  };
}

// Times by state of each thread of the flame graph, by its title.
function byTitle() {
  const rows = new Map();
  for (const { title, times } of data.flame.threads) {
    const states = Array(STATES.length).fill(0);
    for (let t = 0; t < times.length; t += 4) states[times[t + 1]] += times[t + 2];
    rows.set(title, states);
  }
  return rows;
}

const over = report.ranks.length ? "ranks" : "threads";
const inCalls = sum(report.calls.map(g => g.time));
const histograms = report.calls.map(g => g.histogram).filter(h => h.some(n => n));
// From the first to the last power of two of all calls.
const first = Math.min(...histograms.map(h => h.findIndex(n => n)));
const end = Math.max(...histograms.map(h => h.findLastIndex(n => n))) + 1;
const GROUP = [
  ["time (ns)", g => g.time],
  ["share", g => ratio(g.time, inCalls), percent],
  ["calls", g => g.count],
  ["failed", g => sum(Object.values(g.errors)), (n, g) => n ? figures(n) + " " + Object.keys(g.errors).slice(0, 3).join(" ") : ""],
  ["unfinished", g => g.unfinished.count, n => n || ""],
  ["on a CPU (ns)", g => g.cpu],
  ["blocked (ns)", g => g.blocked],
  ["runnable (ns)", g => g.runnable],
  ["faults, irqs (ns)", g => g.taken],
  ["mean (ns)", g => Math.floor(ratio(g.time - g.unfinished.time, g.count) ?? 0)],
  ["max (ns)", g => g.max],
  ["bytes", g => g.bytes, n => n ? figures(n) : ""],
  [`max/mean of ${over}`, g => g.max_by_mean, x => x === null ? "" : x.toFixed(2)],
  ["latency", g => g.histogram.some(n => n) ? g.max : 0, () => "", (cell, g) => histogram(cell, g, first, end)],
  ["mostly", g => longest(g.within)],
];

// A bar of the parts of a row's time, beside those of the other rows.
function pieces(rows, states) {
  const longest = Math.max(1, ...rows.map(u => u.time));
  return ["", u => u.time, () => "", (cell, u) => {
    const times = u.times ?? states?.get(u.title?.trim()) ?? data.parts.reduce((all, p) => {
      all[stateOf(p.key)] += u.parts[p.key];
      return all;
    }, Array(STATES.length).fill(0));
    const whole = Math.max(u.time, sum(times));
    stack(cell, times, longest);
    hint(cell, box => {
      make("b", box, u.title ?? u.name);
      list(box, times, whole);
    });
  }];
}

// Of one thread wall time is the time of all its parts; of several it is not.
function units(title, rows, single, more, options) {
  const walls = [["wall (ns)", u => u.wall], ["threads' time (ns)", u => u.time]];
  table(title, rows, [
    [title.toLowerCase().split(" ")[0].replace(/s$/, ""), u => u.title ?? u.name],
    pieces(rows, options?.states),
    ...(single ? [["wall (ns)", u => u.time]] : walls),
    ...data.parts.map(p => [p.short + " (ns)", u => u.parts[p.key]]),
    ["residual (ns)", u => Math.abs(u.residual) * 2000 >= u.time ? u.residual : 0, (ns, u) => ns && u.time ? percent(u.residual / u.time) : ""],
    ...(single ? [] : [["threads", u => u.threads]]),
    ...(more || [["node", u => u.host]]),
  ], options);
}

// What is left to say: what was not recorded, and what was lost.
function remarks() {
  const lost = Object.entries(report.lost);
  if (!lost.length && !data.missing.length) return;
  const part = make("section", main);
  for (const why of data.missing) make("p", part, `Not reported: ${why}`, { className: "note" });
  if (!lost.length) return;
  const fold = make("details", part);
  make("summary", fold, `Lost: ${counted(sum(lost.map(([, n]) => n)), "event")}`);
  for (const [what, n] of lost) make("div", fold, `${figures(n)} ${what}`);
}

// Each function with its own time and that of what it called, on and off a processor, of the threads in the sentences. A
// function that called itself has its time once.
function functions() {
  const { flame } = data, S = STATES.length;
  const tree = sumUp(flame, flame.threads.filter(t => !t.asleep), -1);
  const of = (i, from) => sum(from.subarray(i * S, i * S + S));
  const rows = flame.frames.map(([name, kind, module, line]) => ({ name, kind, module, line, own: 0, time: 0, times: Array(S).fill(0) }));
  for (let i = 1; i < tree.at.length; i++) rows[tree.at[i]].own += of(i, tree.sums);
  for (let i = tree.at.length - 1; i > 0; i--) for (let s = 0; s < S; s++) tree.sums[tree.parents[i] * S + s] += tree.sums[i * S + s];
  for (let i = 1; i < tree.at.length; i++) {
    let up = tree.parents[i];
    while (up && tree.at[up] !== tree.at[i]) up = tree.parents[up];
    if (up) continue;
    const row = rows[tree.at[i]];
    for (let s = 0; s < S; s++) row.times[s] += tree.sums[i * S + s];
  }
  for (const row of rows) row.time = sum(row.times);
  const all = of(0, tree.sums);
  return { all, rows: rows.filter(r => r.kind === "function" && r.time).sort((a, b) => b.time - a.time) };
}

// The counted events by function and by region, in the order in which they were asked for.
function events() {
  const { all, functions, regions } = report.events;
  const names = [...new Set(report.recordings.flatMap(r => (r.options.counted ?? []).map(c => c.event)))];
  if (!names.length) return;
  const shown = (name, n) => name === "cpu-clock" ? time(n) : figures(n);
  const cycles = ({ counts }) => ratio(counts.instructions.events, counts.cycles.events);
  const two = x => x === null ? "" : x.toFixed(2);
  const both = all.instructions && all.cycles;
  const numbers = [
    ...names.map(name => [name === "cpu-clock" ? "cpu-clock (ns)" : name, p => p.counts[name].events, n => n ? shown(name, n) : ""]),
    ...(both ? [["IPC", cycles, two]] : []),
  ];
  const estimates = names.map(name => `${name} ${shown(name, all[name].events)} (from ${counted(all[name].samples, "sample")})`);
  if (both) estimates.push(`${two(cycles({ counts: all }))} instructions a cycle`);
  const note = `Estimated events: ${estimates.join(", ")}.`;
  const act = (line, p) => { if (p.function) line.addEventListener("click", () => graph?.show(searchFor(p))); };
  table("Events", functions, [
    ["function", p => p.function || (p.location ? `${p.location} (no symbols)` : "-")],
    ...numbers,
    ["line", p => p.function ? p.location ?? "" : ""],
  ], { note: graph ? note + " A click on a row shows the function in the flame graph." : note, act });
  if (regions.some(r => r.name !== "outside of regions")) table("Events by region", regions, [["region", p => p.name], ...numbers], { note });
}

function tables() {
  table("Places", report.places, [
    ["place", p => p.function || (p.location ? `${p.location} (no symbols)` : "(no stack)")],
    ["time (ns)", p => p.time],
    ["share", p => ratio(p.time, report.all.time), percent],
    ["threads", p => p.threads],
    ["state", doing, null, (cell, p) => { cell.textContent = ""; swatch(cell, stateOfPlace(p)); cell.append(doing(p)); }],
    ["system call", p => p.call ?? ""],
    ["line", p => p.function ? p.location ?? "" : ""],
    ["called by", p => p.caller ?? ""],
  ], { note: graph && "A click on a row shows the place in the flame graph.", act: (line, p) => line.addEventListener("click", () => graph?.show(searchFor(p))) });
  const { all, rows } = functions();
  table("Functions", graph ? rows : [], [
    ["function", f => f.name],
    pieces(rows, null),
    ["time (ns)", f => f.time],
    ["share", f => ratio(f.time, all), percent],
    ["own (ns)", f => f.own],
    ["own share", f => ratio(f.own, all), percent],
    ["line", f => f.line ?? ""],
    ["module", f => f.module ?? ""],
  ], { note: "With what they called, on and off a processor. A click on a row shows the function in the flame graph.", act: (line, f) => line.addEventListener("click", () => graph?.show(exactly(f.name))) });
  events();
  table("Calls", report.calls, [["call", g => g.name], ...GROUP]);
  table("Regions", report.regions, [
    ["region", r => r.name],
    ["entries", r => r.entries],
    ["time (ns)", r => r.inclusive],
    ["own (ns)", r => r.exclusive],
    ["share", r => ratio(r.exclusive, report.all.time), percent],
    ...data.parts.map(p => [p.short + " (ns)", r => r.parts[p.key]]),
    ["residual (ns)", r => r.residual],
    [`max/mean of ${over}`, r => r.max_by_mean, x => x === null ? "" : x.toFixed(2)],
    ["mostly", r => longest(r.calls)],
  ]);
  if (report.calls_by_region.length > 1) table("Calls by region", report.calls_by_region, [["region", g => g.name], ...GROUP]);
  table("Futexes", [...report.futexes].sort((a, b) => b.time - a.time), [
    ["futex", f => f.name ?? "0x" + f.address.toString(16)],
    ["process", f => `${f.recording} ${f.pid}`],
    ["waits", f => f.waits],
    ["time (ns)", f => f.time],
    ["mean (ns)", f => ratio(f.time, f.waits)],
    ["max (ns)", f => f.max],
    ["woken by", f => f.wakes.slice(0, 8).map(w => `${w.waker} wakes ${w.woken}: ${w.count}`).join(", ")],
    ["waits in", f => f.region.join(" > ")],
  ]);
  const states = byTitle();
  const act = (line, u) => line.addEventListener("click", () => graph?.show("", u.title.trim()));
  const note = graph && "A click on a row shows the thread alone in the flame graph.";
  if (report.nodes.length > 1) units("Nodes", report.nodes);
  units("Ranks", report.ranks);
  units("Programs", report.programs, false, [["processes", p => p.processes], ["asleep (ns)", p => p.asleep]]);
  units("Threads", report.threads, true, null, { states, act, note });
  units("Threads that only sleep", report.asleep, true, [["calls", s => s.calls], ["mostly in", s => s.mostly_in]], { states, act, note: "They are in no sum above." });
}

// (The sentences ask it for places.)
let graph = null;
head();
timeline();
graph = flame();
if (!graph) legend(null, []);
tables();
remarks();
document.body.dataset.ready = "yes";

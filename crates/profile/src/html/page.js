// The page's program. Names come from programs that were recorded: they are put in as text only.
const data = JSON.parse(document.getElementById("data").textContent);
// The report, as --json prints it.
const report = data.report;
const main = document.getElementById("main");
const tip = document.getElementById("tip");

function make(tag, parent, text, more) {
  const node = document.createElement(tag);
  if (text !== undefined && text !== null) node.textContent = text;
  if (more) Object.assign(node, more);
  parent.append(node);
  return node;
}

function section(title, note) {
  const part = make("section", main);
  make("h2", part, title);
  if (note) make("div", part, note, { className: "note" });
  return part;
}

function time(ns) {
  const size = Math.abs(ns);
  for (const [unit, name] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"]]) {
    if (size >= unit * 0.9995) {
      const value = ns / unit;
      const digits = size >= unit * 99.95 ? 0 : size >= unit * 9.995 ? 1 : 2;
      return value.toFixed(digits) + " " + name;
    }
  }
  return Math.round(ns) + " ns";
}
const percent = x => x === null ? "" : (x * 100).toFixed(1) + "%";
const ratio = (part, all) => all ? part / all : null;
const sum = numbers => numbers.reduce((a, b) => a + b, 0);
const partsOf = row => data.parts.map(p => row.parts[p.key]);
// The name with the largest number.
const longest = times => Object.entries(times).reduce((a, b) => b[1] >= a[1] ? b : a, ["", 0])[0];

// What is said of a thing while the pointer is on it.
function hint(node, text) {
  node.addEventListener("pointermove", event => show(event, text()));
  node.addEventListener("pointerleave", () => { tip.hidden = true; });
}
function show(event, text) {
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
  tip.style.top = Math.max(4, Math.min(event.clientY + 16, innerHeight - box.height - 8)) + "px";
}

// The same name has the same colour in all pictures.
function colour(name, light) {
  if (chosen.has(name)) return chosen.get(name);
  let hash = 7;
  for (const c of name) hash = (hash * 31 + c.codePointAt(0)) >>> 0;
  return `hsl(${(hash * 137.5) % 360} ${55 + hash % 20}% ${light}%)`;
}

const PARTS = ["#4c9f70", "#e08e45", "#c8553d", "#e3c567", "#7a9cc6", "#3d5a98", "#9d79bc", "#c9a7d8"];
const RESIDUAL = "#8b939c";

function bars(title, units) {
  if (!units.length) return;
  const part = section(title);
  const legend = make("div", part, null, { className: "legend" });
  const names = data.parts.map(p => p.name).concat("residual");
  names.forEach((name, i) => {
    const entry = make("span", legend);
    make("i", entry).style.background = PARTS[i] || RESIDUAL;
    entry.append(name);
  });
  const LIMIT = 400;
  const shown = [...units].sort((a, b) => units.length > LIMIT ? b.time - a.time : 0).slice(0, LIMIT);
  if (units.length > LIMIT) make("div", part, `the ${LIMIT} longest of ${units.length}`, { className: "note" });
  const grid = make("div", part, null, { className: "bars" });
  const longest = Math.max(1, ...shown.map(u => Math.max(u.time, sum(partsOf(u)))));
  for (const unit of shown) {
    make("div", grid, unit.title, { className: "name", title: unit.title });
    const bar = make("div", grid, null, { className: "bar" });
    partsOf(unit).concat(Math.max(0, unit.residual)).forEach((ns, i) => {
      if (ns <= 0) return;
      const piece = make("span", bar);
      piece.style.width = 100 * ns / longest + "%";
      piece.style.background = PARTS[i] || RESIDUAL;
      hint(piece, () => `${unit.title}\n${names[i]}: ${time(ns)} (${percent(ratio(ns, unit.time))})`);
    });
    make("div", grid, time(unit.time), { className: "total" });
  }
}

// Columns: head, the value that sorts, its text.
function table(title, rows, columns, note) {
  if (!rows.length) return;
  const part = section(title, note);
  columns = columns.filter(([, value], i) => i === 0 || rows.some(r => value(r)));
  const box = make("div", part, null, { className: "scroll" });
  const grid = make("table", box);
  const head = make("tr", make("thead", grid));
  const body = make("tbody", grid);
  let order = [...rows];
  const fill = () => {
    body.replaceChildren();
    for (const row of order) {
      const line = make("tr", body);
      for (const [, value, text, draw] of columns) {
        const v = value(row);
        const isText = typeof v === "string";
        const cell = make("td", line, text ? text(v, row) : v ?? "", isText ? { className: "text", title: v } : {});
        if (draw) draw(cell, row);
      }
    }
  };
  columns.forEach(([name, value]) => {
    const cell = make("th", head);
    if (typeof value(rows[0]) === "string") cell.className = "text";
    const button = make("button", cell, name);
    button.addEventListener("click", () => {
      const text = typeof value(rows[0]) === "string";
      const was = cell.getAttribute("aria-sort");
      const up = was ? was === "descending" : text;
      for (const other of head.children) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", up ? "ascending" : "descending");
      const compare = text
        ? (a, b) => value(a).localeCompare(value(b))
        : (a, b) => (value(a) ?? -1) - (value(b) ?? -1);
      order.sort((a, b) => up ? compare(a, b) : compare(b, a));
      fill();
    });
  });
  fill();
  fit(part, box, grid);
}

// Columns that have no room are hidden, from the last on, until somebody asks for them.
function fit(part, box, grid) {
  const more = make("button", part, "", { className: "plain", hidden: true });
  let all = false;
  const show = count => {
    for (const line of grid.rows) [...line.cells].forEach((cell, i) => { cell.hidden = i >= count; });
  };
  const measure = () => {
    const columns = grid.tHead.rows[0].cells.length;
    let count = columns;
    show(count);
    while (!all && count > 2 && grid.offsetWidth > box.clientWidth) show(--count);
    grid.dataset.columns = count;
    more.hidden = count === columns;
    more.textContent = `${columns - count} more columns`;
  };
  more.addEventListener("click", () => { all = true; measure(); });
  grid.addEventListener("click", event => { if (event.target.closest("th button")) measure(); });
  addEventListener("resize", measure);
  measure();
}

// A bar for each power of two of nanoseconds, from the first to the last of all calls.
const histograms = report.calls.map(g => g.histogram).filter(h => h.some(n => n));
const first = Math.min(...histograms.map(h => h.findIndex(n => n)));
const end = Math.max(...histograms.map(h => h.findLastIndex(n => n))) + 1;
function histogram(cell, group) {
  cell.textContent = "";
  const box = make("span", cell, null, { className: "histogram" });
  const most = Math.max(1, ...group.histogram);
  for (let place = first; place < end; place++) {
    const n = group.histogram[place] || 0;
    const bar = make("i", make("b", box));
    bar.style.height = n ? Math.max(6, 100 * n / most) + "%" : "0";
    hint(bar.parentNode, () => `${group.name}\n${n} calls from ${time(place ? 2 ** place : 0)} to ${time(2 ** (place + 1))}`);
  }
}

const over = report.ranks.length ? "ranks" : "threads";
const inCalls = sum(report.calls.map(g => g.time));
const GROUP = [
  ["time", g => g.time, time],
  ["share", g => ratio(g.time, inCalls), percent],
  ["calls", g => g.count],
  ["failed", g => sum(Object.values(g.errors)), (n, g) => n ? n + " " + Object.keys(g.errors).slice(0, 3).join(" ") : ""],
  ["unfinished", g => g.unfinished.count, n => n || ""],
  ["on a CPU", g => g.cpu, time],
  ["blocked", g => g.blocked, time],
  ["runnable", g => g.runnable, time],
  ["faults, irqs", g => g.taken, time],
  ["mean", g => Math.floor(ratio(g.time - g.unfinished.time, g.count) ?? 0), time],
  ["max", g => g.max, time],
  ["bytes", g => g.bytes, n => n ? n.toLocaleString("en") : ""],
  [`max/mean of ${over}`, g => g.max_by_mean, x => x === null ? "" : x.toFixed(2)],
  ["latency", g => g.histogram.some(n => n) ? g.max : 0, () => "", histogram],
  ["mostly", g => longest(g.within)],
];

// Of one thread wall time is the time of all its parts; of several it is not.
function units(title, rows, single, more) {
  const walls = [["wall", u => u.wall, time], ["threads' time", u => u.time, time]];
  table(title, rows, [
    [title.toLowerCase(), u => u.title ?? u.name],
    ...(single ? [["wall", u => u.time, time]] : walls),
    ...data.parts.map(p => [p.short, u => u.parts[p.key], time]),
    ["residual", u => u.residual, (ns, u) => u.time ? percent(ns / u.time) : time(ns)],
    ...(single ? [] : [["threads", u => u.threads]]),
    ...(more || [["node", u => u.host]]),
  ]);
}

function merge(into, from) {
  into.t += from.t;
  into.c += from.c;
  for (const child of from.ch) {
    const key = child.k + "\0" + child.n + "\0" + child.m;
    let mine = into.index.get(key);
    if (!mine) {
      mine = { n: child.n, k: child.k, m: child.m, t: 0, c: 0, ch: [], index: new Map() };
      into.index.set(key, mine);
      into.ch.push(mine);
    }
    merge(mine, child);
  }
  return into;
}

function flame() {
  if (!data.trees.some(t => t.tree.t > 0)) return;
  const part = section("Time by call path", "Click on a place to see it alone, on the top one to go back.");
  const choice = make("select", part, null, { ariaLabel: "threads" });
  make("option", choice, "all threads", { value: "-1" });
  data.trees.forEach((t, i) => make("option", choice, t.title, { value: i }));
  const box = make("div", part, null, { className: "flame", id: "flame" });
  let whole;
  function draw(top) {
    box.replaceChildren();
    let deepest = 0;
    const put = (node, depth, left, width, name) => {
      deepest = Math.max(deepest, depth);
      const share = percent(whole.t ? node.t / whole.t : null);
      const cell = make("div", box, name);
      cell.style.cssText = `top:${depth * 19}px;left:${left}%;width:${width}%;background:${colour(node.n, node.k === "syscall" ? 62 : node.k === "region" ? 80 : 72)}`;
      cell.dataset.kind = node.k;
      hint(cell, () => `${name}${node.m ? " in " + node.m : ""}\n${time(node.t)}, ${share}${node.c ? ", " + node.c + " calls" : ""}`);
      cell.addEventListener("click", () => { tip.hidden = true; draw(node === top ? whole : node); });
      let at = left;
      for (const child of [...node.ch].sort((a, b) => b.t - a.t)) {
        const wide = node.t ? width * child.t / node.t : 0;
        if (wide < 0.05) continue;
        put(child, depth + 1, at, wide, child.n || "?");
        at += wide;
      }
    };
    put(top, 0, 0, 100, top === whole ? `all calls, ${time(whole.t)}` : top.n || "?");
    box.style.height = (deepest + 1) * 19 + "px";
  }
  function choose() {
    const chosen = data.trees.filter((_, i) => choice.value === "-1" || Number(choice.value) === i);
    whole = { n: "", k: "all", m: null, t: 0, c: 0, ch: [], index: new Map() };
    chosen.forEach(t => merge(whole, t.tree));
    draw(whole);
  }
  choice.addEventListener("change", choose);
  choose();
}

document.getElementById("head").textContent = data.head;
if (data.failed) make("p", main, data.failed);
for (const why of data.missing) make("p", main, `Not reported: ${why}`);
for (const [what, n] of Object.entries(report.lost)) make("p", main, `Lost: ${n} ${what}`);
bars("Where the time of each rank went", report.ranks);
bars("Where the time of each thread went", report.threads);
timeline();
flame();
table("Calls", report.calls, [["call", g => g.name], ...GROUP]);
table("Regions", report.regions, [
  ["region", r => r.name],
  ["entries", r => r.entries],
  ["time", r => r.inclusive, time],
  ["own", r => r.exclusive, time],
  ["share", r => ratio(r.exclusive, report.all.time), percent],
  ...data.parts.map(p => [p.short, r => r.parts[p.key], time]),
  ["residual", r => r.residual, time],
  [`max/mean of ${over}`, r => r.max_by_mean, x => x === null ? "" : x.toFixed(2)],
  ["mostly", r => longest(r.calls)],
]);
if (report.calls_by_region.length > 1) table("Calls by region", report.calls_by_region, [["region", g => g.name], ...GROUP]);
table("Futexes", [...report.futexes].sort((a, b) => b.time - a.time), [
  ["futex", f => f.name ?? "0x" + f.address.toString(16)],
  ["process", f => `${f.recording} ${f.pid}`],
  ["waits", f => f.waits],
  ["time", f => f.time, time],
  ["mean", f => ratio(f.time, f.waits), ns => ns === null ? "" : time(ns)],
  ["max", f => f.max, time],
  ["woken by", f => f.wakes.map(w => `${w.waker} wakes ${w.woken}: ${w.count}`).join(", ")],
  ["waits in", f => f.region.join(" > ")],
]);
if (report.nodes.length > 1) units("Nodes", report.nodes);
units("Ranks", report.ranks);
units("Programs", report.programs, false, [["processes", p => p.processes], ["asleep", p => p.asleep, time]]);
units("Threads", report.threads, true);
units("Threads that only sleep", report.asleep, true, [["calls", s => s.calls], ["mostly in", s => s.mostly_in]]);
document.body.dataset.ready = "yes";

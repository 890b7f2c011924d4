// The time line. A point of the screen shows the share of each state in the time that it stands for: what is
// shorter than a point is as high as its share, at every zoom.
"use strict";
const OFF = [["blocked", "#c8553d"], ["ready, waits for a CPU", "#e3c567"], ["preempted", "#a8791f"]];
const PROGRAM = "#4c9f70";
const OTHERS = "#9aa0a6";
// By time: names beyond these share a colour.
const CALLS = ["#3f6fb5", "#f28e2b", "#b0579f", "#2bb3cf", "#e15759", "#8c6d52", "#edc948", "#7b61c9", "#ff9da7", "#1f4e79", "#c2b280"];
const REGIONS = ["#8cb8e8", "#f7b77a", "#c9a7ea", "#f29b9b", "#8fd3d6", "#e8d385", "#dca0cc", "#a5b3c9", "#c7a98f", "#b9c6f2", "#f0c7d8"];
// The same name has the same colour in all pictures.
const chosen = new Map();

function timeline() {
  const trace = data.trace;
  if (!trace) return;
  const { begin, end, lanes } = trace;
  trace.calls.forEach((name, i) => chosen.set(name, CALLS[i] || OTHERS));
  trace.regions.forEach((name, i) => chosen.set(name, REGIONS[i] || OTHERS));
  const kinds = {
    call: { high: 15, names: trace.calls, colours: CALLS, base: PROGRAM, what: "calls" },
    region: { high: 12, names: trace.regions, colours: REGIONS, base: null, what: "regions" },
    off: { high: 5, names: OFF.map(o => o[0]), colours: OFF.map(o => o[1]), base: null, what: "times" },
  };
  for (const kind of Object.values(kinds)) kind.paint = [...kind.colours.slice(0, kind.names.length), OTHERS];

  let note = "Wheel: closer and further; drag: to and fro; double click: all. Where several things meet at a point, each is as high as its share of the time.";
  if (trace.leftOut) note += ` The ${trace.shown} longest are there one by one, ${trace.leftOut} shorter ones as shares of ${time((end - begin) / trace.times)}.`;
  if (trace.threadsLeftOut) note += ` ${trace.threadsLeftOut} threads that did least are not shown.`;
  const part = section("Time line", note);
  legend(part, kinds);
  const back = make("button", part, "all", { className: "plain" });
  const canvas = make("canvas", part, null, { id: "timeline" });
  const TOP = 22;
  // Where each lane is: those of a thread stand together.
  let high = TOP;
  for (const lane of lanes) {
    lane.y = high;
    lane.high = kinds[lane.kind].high;
    high += lane.high + (lane.kind === "off" ? 6 : 1);
  }
  high += 4;
  canvas.style.height = high + "px";
  canvas.dataset.lanes = JSON.stringify(lanes.map(l => [l.kind, l.y, l.high]));
  const pen = canvas.getContext("2d");
  let from = begin, to = end, wide = 0, left = 150;

  function draw() {
    wide = canvas.clientWidth;
    left = wide < 800 ? 96 : 150;
    const scale = Math.min(devicePixelRatio || 1, 30000 / high);
    canvas.width = Math.round(wide * scale);
    canvas.height = Math.round(high * scale);
    canvas.dataset.from = from;
    canvas.dataset.to = to;
    canvas.dataset.left = Math.round(left * scale);
    canvas.dataset.scale = scale;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, wide, high);
    axis();
    pen.setTransform(1, 0, 0, 1, 0, 0);
    for (const lane of lanes) paint(lane, scale);
  }

  function axis() {
    const style = getComputedStyle(document.documentElement);
    const soft = style.getPropertyValue("--soft"), line = style.getPropertyValue("--line");
    pen.font = "12px system-ui, sans-serif";
    const x = ns => left + (wide - left) * (ns - from) / (to - from);
    let step = Math.pow(10, Math.floor(Math.log10((to - from) / 3)));
    while ((to - from) / step > (wide - left) / 90) step *= 2;
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
      pen.fillStyle = line;
      pen.fillRect(x(at), TOP - 5, 1, high);
      pen.fillStyle = soft;
      if (x(at) + 40 < wide) pen.fillText(time(at), x(at) + 3, 12);
    }
    pen.fillStyle = soft;
    for (const lane of lanes) {
      let title = lane.title;
      while (title && pen.measureText(title).width > left - 8) title = title.slice(0, -2) + "\u2026";
      if (title) pen.fillText(title, 2, lane.y + 12);
    }
  }

  // A lane: in each column of the screen the colours stand on each other, as high as their shares.
  function paint(lane, scale) {
    const kind = kinds[lane.kind], colours = kind.paint.length;
    const start = Math.round(left * scale), columns = canvas.width - start;
    if (columns <= 0) return;
    const x = ns => columns * (ns - from) / (to - from);
    const shares = sharesOf(lane, columns, x, colours);
    const top = lane.y * scale, tall = lane.high * scale;
    if (kind.base) {
      const a = Math.max(0, x(lane.from)), b = Math.min(columns, x(lane.to));
      pen.fillStyle = kind.base;
      if (b > a) pen.fillRect(start + a, top, b - a, tall);
    }
    for (let c = 0; c < columns; c++) {
      let y = top + tall;
      for (let colour = 0; colour < colours; colour++) {
        const share = shares[c * colours + colour];
        if (share <= 0) continue;
        // Columns that are of one colour are drawn at once.
        let last = c + 1;
        if (share > 0.999) while (last < columns && shares[last * colours + colour] > 0.999) last++;
        const height = Math.min(share, 1) * tall;
        y -= height;
        pen.fillStyle = kind.paint[colour];
        pen.fillRect(start + c, Math.max(y, top), last - c, Math.min(height, y + height - top));
        c = last - 1;
      }
    }
    if (lane.kind === "call") pale(lanes[lanes.indexOf(lane) + 1], start, columns, x, top, tall);
  }

  // Off its CPU a thread is pale.
  function pale(lane, start, columns, x, top, tall) {
    const colours = kinds.off.paint.length, shares = sharesOf(lane, columns, x, colours);
    pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--back");
    for (let c = 0; c < columns; c++) {
      let share = 0;
      for (let colour = 0; colour < colours; colour++) share += shares[c * colours + colour];
      if (share <= 0) continue;
      pen.globalAlpha = 0.6 * Math.min(share, 1);
      pen.fillRect(start + c, top, 1, tall);
    }
    pen.globalAlpha = 1;
  }

  // For each column the share of each colour.
  function sharesOf(lane, columns, x, colours) {
    const others = colours - 1;
    const shares = new Float32Array(columns * colours);
    const add = (a, b, name, weight) => {
      a = Math.max(0, a);
      b = Math.min(columns, b);
      const colour = name < others ? name : others;
      for (let c = Math.floor(a); c < b; c++) shares[c * colours + colour] += weight * (Math.min(b, c + 1) - Math.max(a, c));
    };
    for (let i = after(lane.events, from); i < lane.events.length && lane.events[i][2] < to; i++) {
      const e = lane.events[i];
      add(x(e[2]), x(e[2] + e[3]), e[0], 1);
    }
    const each = (end - begin) / trace.times;
    for (const [n, name, ns] of lane.sums || []) {
      const at = begin + n * each;
      if (at + each > from && at < to) add(x(at), x(at + each), name, ns / each);
    }
    return shares;
  }

  function look(a, b) {
    const least = 10;
    if (b - a < least) b = a + least;
    const length = Math.min(b - a, end - begin);
    from = Math.min(Math.max(a, begin), end - length);
    to = from + length;
    draw();
  }
  const inside = event => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const at = x => from + (to - from) * (x - left) / Math.max(1, wide - left);
  canvas.addEventListener("wheel", event => {
    event.preventDefault();
    const middle = at(inside(event).x);
    const factor = Math.pow(1.0015, event.deltaY);
    look(middle - (middle - from) * factor, middle + (to - middle) * factor);
  }, { passive: false });
  let drag = null;
  canvas.addEventListener("pointerdown", event => { drag = { x: inside(event).x, from, to }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { drag = null; });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("dblclick", () => look(begin, end));
  back.addEventListener("click", () => look(begin, end));
  canvas.addEventListener("pointermove", event => {
    const p = inside(event);
    if (drag) {
      const moved = (drag.x - p.x) * (drag.to - drag.from) / Math.max(1, wide - left);
      return look(drag.from + moved, drag.to + moved);
    }
    const lane = lanes.find(l => l.y <= p.y && p.y < l.y + l.high);
    const text = lane && p.x >= left && told(trace, kinds[lane.kind], lane, at(p.x), at(p.x + 1));
    if (text) show(event, text);
    else tip.hidden = true;
  });
  addEventListener("resize", draw);
  draw();
}

// The first event of a lane that ends after a time.
function after(events, when) {
  let low = 0, high = events.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (events[middle][2] + events[middle][3] <= when) low = middle + 1;
    else high = middle;
  }
  return low;
}

// What is said of a point of a lane: the event that is there alone, or the shares of several.
function told(trace, kind, lane, from, to) {
  if (to < lane.from || from > lane.to) return "";
  const found = [];
  for (let i = after(lane.events, from); i < lane.events.length && lane.events[i][2] < to; i++) found.push(lane.events[i]);
  const each = (trace.end - trace.begin) / trace.times;
  const sums = (lane.sums || []).filter(([n]) => trace.begin + (n + 1) * each > from && trace.begin + n * each < to);
  if (found.length === 1 && !sums.length) {
    const [name, path, start, length, result] = found[0];
    const ends = result === undefined ? "" : result === false ? " (unfinished)" : " = " + result;
    return `${kind.names[name]}${ends}\n${time(length)} from ${time(start)}\n${trace.paths[path]}`;
  }
  if (!found.length && !sums.length) return kind.base ? "the program" : "";
  const shares = new Map();
  const put = (name, ns, count) => {
    const row = shares.get(name) || [0, 0];
    shares.set(name, [row[0] + ns, row[1] + count]);
  };
  for (const [name, , start, length] of found) put(name, Math.max(0, Math.min(to, start + length) - Math.max(from, start)), 1);
  for (const [n, name, ns] of sums) {
    const at = trace.begin + n * each;
    put(name, ns / each * Math.max(0, Math.min(to, at + each) - Math.max(from, at)), 0);
  }
  const rows = [...shares].sort((a, b) => b[1][0] - a[1][0]).slice(0, 6);
  const lines = rows.map(([name, [ns, count]]) => `${percent(ns / (to - from))} ${kind.names[name]}${count ? `, ${count} ${kind.what}` : ""}`);
  return `${time(to - from)} from ${time(from)}\n${lines.join("\n")}`;
}

// The meaning of each colour.
function legend(part, kinds) {
  const entries = kind => {
    const list = kind.names.slice(0, kind.colours.length).map((name, i) => [name, kind.colours[i]]);
    if (kind.names.length > kind.colours.length) list.push([`others (${kind.names.length - kind.colours.length})`, OTHERS]);
    return list;
  };
  for (const [title, list] of [
    ["Regions", entries(kinds.region)],
    ["Calls", [["the program", PROGRAM], ...entries(kinds.call)]],
    ["Pale: off its CPU", entries(kinds.off)],
  ]) {
    if (!list.length) continue;
    const box = make("div", part, null, { className: "legend" });
    make("b", box, title);
    for (const [name, paint] of list) {
      const entry = make("span", box, null, { title: name });
      make("i", entry).style.background = paint;
      entry.append(name);
    }
  }
}

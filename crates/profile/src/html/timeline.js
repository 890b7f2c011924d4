// The time line. A point of the screen shows the share of each state in the time that it stands for: what is
// shorter than a point is as high as its share, at every zoom.

// Why a thread is off its processor, and its state then; within calls and outside of them.
const OFF = [["blocked", BLOCKED], ["ready, waits for a CPU", READY], ["preempted", READY], ["waits for a lock", LOCK]];
// Greys of regions, which have names and no state.
const GREYS = ["#9aa3ad", "#b7bec6", "#848e99", "#c9cfd5", "#a8b0b9"];
// What is painted over the program's own colour.
const OVER = [KERNEL, READY, BLOCKED, LOCK];
// Maximum number of arrows on the screen: more would hide what is below them.
const ARROWS = 300;

function timeline() {
  const trace = data.trace;
  if (!trace) return;
  const { begin, end, lanes } = trace;
  let note = "Ctrl and wheel: closer and further; drag: to and fro; double click: all; arrow keys, + and - too. Where several things meet at a point, each is as high as its share of the time. A wait is one for a lock where most of the thread's waits in this system call are, by their stacks. Page faults and interrupts are in what they interrupt.";
  if (trace.leftOut) note += ` The ${figures(trace.shown)} longest events are there one by one, ${figures(trace.leftOut)} shorter ones as shares of ${time((end - begin) / trace.times)}.`;
  if (trace.threadsLeftOut) note += ` ${counted(trace.threadsLeftOut, "thread")} that did least ${trace.threadsLeftOut === 1 ? "is" : "are"} not shown.`;
  const wakeups = wakeupsOf(trace);
  if (wakeups.length) note += " Arrows lead from the thread that ended a wait to the one that waited.";
  const part = section("Time line", note);
  const tools = make("div", part, null, { className: "tools" });
  button(tools, "+", () => closer(0.5), { ariaLabel: "closer" });
  button(tools, "\u2212", () => closer(2), { ariaLabel: "further" });
  button(tools, "all", () => look(begin, end));
  const wanted = make("input", make("label", tools, null, { hidden: !wakeups.length, title: "key w: arrows from the thread that ended a wait to the one that waited" }), null, { type: "checkbox", checked: true, id: "wakeups" });
  wanted.parentNode.append(" wakeups");
  const few = make("span", tools, null, { className: "soft" });
  const box = make("div", part, null, { className: "lanes" });
  const canvas = make("canvas", box, null, { id: "timeline", tabIndex: 0, ariaLabel: "time line" });
  const TOP = 22, HIGH = { region: 14, call: 16, off: 0 };
  // Where each lane is: those of a thread stand together.
  let high = TOP;
  lanes.forEach((lane, i) => {
    lane.y = high;
    lane.high = HIGH[lane.kind];
    // Times off a processor are painted over the calls.
    if (lane.kind === "call") lane.off = lanes[i + 1];
    if (lane.kind === "region") lane.first = lanes[i - 1]?.kind !== "region";
    high += lane.high + (lane.kind === "off" ? 5 : 1);
  });
  high += 4;
  canvas.style.height = high + "px";
  canvas.dataset.lanes = JSON.stringify(lanes.map(l => [l.kind, l.y, l.high]));
  const pen = canvas.getContext("2d");
  let from = begin, to = end, wide = 0, left = 150, back, soft, line, text;
  const x = ns => left + (wide - left) * (ns - from) / (to - from);

  function draw() {
    [back, soft, line, text] = ["--back", "--soft", "--line", "--text"].map(paper);
    wide = canvas.clientWidth;
    left = wide < 800 ? 96 : 150;
    const scale = fitCanvas(canvas, wide, high);
    canvas.dataset.from = from;
    canvas.dataset.to = to;
    canvas.dataset.left = Math.round(left * scale);
    canvas.dataset.scale = scale;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, wide, high);
    axis();
    // What the box shows of the canvas, and as much on either side of it: the next to be seen.
    const [above, tall] = [box.scrollTop, box.clientHeight];
    const drawn = lanes.filter(l => l.kind !== "off" && l.y + l.high > above - tall && l.y < above + 2 * tall);
    pen.setTransform(1, 0, 0, 1, 0, 0);
    for (const lane of drawn) paint(lane, scale);
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    for (const lane of drawn) write(lane);
    arrows(above, above + tall);
  }

  // The wakeups in view, from the waker's calls to those of the thread that waited.
  function arrows(above, below) {
    const seen = [];
    if (wanted.checked) for (let i = firstAt(wakeups, from); i < wakeups.length && wakeups[i][0] <= to; i++) {
      const [a, b] = [lanes[wakeups[i][1]], lanes[wakeups[i][2]]];
      if (Math.max(a.y, b.y) + HIGH.call > above && Math.min(a.y, b.y) < below) seen.push(wakeups[i]);
    }
    const shown = seen.length <= ARROWS ? seen.length : 0;
    canvas.dataset.wakeups = seen.length;
    canvas.dataset.arrows = shown;
    const hint = shown < seen.length ? ": zoom in to see the arrows" : "";
    few.textContent = wanted.checked && wakeups.length ? `${figures(seen.length)} in view${hint}` : "";
    if (!shown) return;
    const path = new Path2D(), heads = new Path2D();
    for (const [when, waker, woken] of seen) {
      const down = lanes[woken].y > lanes[waker].y;
      const [tail, point] = [lanes[waker].y + HIGH.call / 2, lanes[woken].y + (down ? 0 : HIGH.call)];
      // (A line in the middle of a point is sharp.)
      const at = Math.floor(x(when)) + 0.5, neck = point + (down ? -6 : 6);
      path.moveTo(at, tail);
      path.lineTo(at, neck);
      heads.moveTo(at, point);
      heads.lineTo(at - 3.5, neck);
      heads.lineTo(at + 3.5, neck);
      heads.closePath();
      heads.moveTo(at + 2, tail);
      heads.arc(at, tail, 2, 0, 7);
    }
    // A border in the page's colour sets them off from all others.
    pen.lineJoin = "round";
    pen.strokeStyle = back;
    pen.lineWidth = 3;
    pen.stroke(path);
    pen.stroke(heads);
    pen.strokeStyle = pen.fillStyle = text;
    pen.lineWidth = 1;
    pen.stroke(path);
    pen.fill(heads);
  }

  function axis() {
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "alphabetic";
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
    const start = Math.round(left * scale), columns = canvas.width - start;
    if (columns <= 0) return;
    const x = ns => columns * (ns - from) / (to - from);
    const colours = lane.kind === "region" ? GREYS : OVER.map(state => STATES[state].colour);
    const shares = sharesOf(lane, columns, x, colours.length);
    const top = lane.y * scale, tall = lane.high * scale;
    if (lane.kind === "call") {
      const a = Math.max(0, x(lane.from)), b = Math.min(columns, x(lane.to));
      pen.fillStyle = STATES[USER].colour;
      if (b > a) pen.fillRect(start + a, top, b - a, tall);
    }
    const n = colours.length;
    for (let c = 0; c < columns; c++) {
      let y = top + tall;
      for (let colour = 0; colour < n; colour++) {
        const share = shares[c * n + colour];
        if (share <= 0.0005) continue;
        // Columns that are of one colour are drawn at once.
        let last = c + 1;
        if (share > 0.999) while (last < columns && shares[last * n + colour] > 0.999) last++;
        const height = Math.min(share, 1) * tall;
        y -= height;
        pen.fillStyle = colours[colour];
        pen.fillRect(start + c, Math.max(y, top), last - c, Math.min(height, y + height - top));
        c = last - 1;
      }
    }
  }

  // For each column the share of each colour.
  function sharesOf(lane, columns, x, colours) {
    const shares = new Float32Array(columns * colours);
    const each = (end - begin) / trace.times;
    const put = (lane, add) => {
      for (let i = after(lane.events, from); i < lane.events.length && lane.events[i][2] < to; i++) {
        const e = lane.events[i];
        add(x(e[2]), x(e[2] + e[3]), e[0], 1);
      }
      for (const [n, name, ns] of lane.sums || []) {
        const at = begin + n * each;
        if (at + each > from && at < to) add(x(at), x(at + each), name, ns / each);
      }
    };
    const add = (a, b, colour, weight) => {
      a = Math.max(0, a);
      b = Math.min(columns, b);
      for (let c = Math.floor(a); c < b; c++) shares[c * colours + colour] += weight * (Math.min(b, c + 1) - Math.max(a, c));
    };
    if (lane.kind === "region") put(lane, (a, b, name, weight) => add(a, b, name % colours, weight));
    else {
      put(lane, (a, b, name, weight) => add(a, b, 0, weight));
      if (lane.off) put(lane.off, (a, b, name, weight) => {
        // Within a call it is no time of the kernel.
        if (name < OFF.length) add(a, b, 0, -weight);
        add(a, b, OVER.indexOf(OFF[name % OFF.length][1]), weight);
      });
    }
    return shares;
  }

  // The names of events that have room for them.
  function write(lane) {
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = "#14181d";
    const names = lane.kind === "region" ? trace.regions : trace.calls;
    const least = 34 * (to - from) / (wide - left);
    for (let i = after(lane.events, from); i < lane.events.length && lane.events[i][2] < to; i++) {
      const [name, , start, length] = lane.events[i];
      if (length < least) continue;
      const a = Math.max(left, x(start)), room = Math.min(wide, x(start + length)) - a - 6;
      let text = names[name];
      if (room < 26) continue;
      if (text.length * 5.6 > room) text = text.slice(0, Math.max(1, Math.floor(room / 6.2) - 1)) + "\u2026";
      pen.fillText(text, a + 3, lane.y + lane.high - 4, room);
    }
  }

  function look(a, b) {
    const least = 10;
    if (b - a < least) b = a + least;
    const length = Math.min(b - a, end - begin);
    from = Math.min(Math.max(a, begin), end - length);
    to = from + length;
    draw();
  }
  function closer(factor, middle = (from + to) / 2) {
    look(middle - (middle - from) * factor, middle + (to - middle) * factor);
  }
  const at = x => from + (to - from) * (x - left) / Math.max(1, wide - left);
  canvas.addEventListener("wheel", event => {
    // Without a key the wheel scrolls the page.
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    closer(Math.pow(1.0015, event.deltaY), at(event.clientX - canvas.getBoundingClientRect().left));
  }, { passive: false });
  canvas.addEventListener("keydown", event => {
    const step = (to - from) / 5;
    const act = {
      ArrowLeft: () => look(from - step, to - step), ArrowRight: () => look(from + step, to + step),
      "+": () => closer(0.7), "-": () => closer(1 / 0.7), "0": () => look(begin, end),
      w: () => { wanted.checked = !wanted.checked; draw(); },
    }[event.key];
    if (!act || event.ctrlKey) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  });
  let drag = null;
  canvas.addEventListener("pointerdown", event => { drag = { x: event.offsetX, from, to }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { drag = null; });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  canvas.addEventListener("pointerleave", hide);
  canvas.addEventListener("dblclick", () => look(begin, end));
  canvas.addEventListener("pointermove", event => {
    const [x, y] = [event.offsetX, event.offsetY];
    if (drag) {
      const moved = (drag.x - x) * (drag.to - drag.from) / Math.max(1, wide - left);
      return look(drag.from + moved, drag.to + moved);
    }
    const lane = lanes.find(l => l.y <= y && y < l.y + l.high);
    const text = lane && x >= left && told(trace, lane, at(x), at(x + 1));
    if (text) show(event, text);
    else hide();
  });
  wanted.addEventListener("change", draw);
  let scrolled = 0;
  box.addEventListener("scroll", () => { scrolled ||= requestAnimationFrame(() => { scrolled = 0; draw(); }); });
  addEventListener("resize", draw);
  dark.addEventListener("change", draw);
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

// The wakeups among threads of the page, [when, lane of the waker, lane of the thread that waited], in the order of time.
// Lanes are those of calls.
function wakeupsOf({ lanes, wakers }) {
  const all = [];
  lanes.forEach((lane, i) => {
    if (lane.kind === "off") for (const [, , start, length, waker] of lane.events)
      if (Number.isInteger(wakers[waker])) all.push([start + length, wakers[waker], i - 1]);
  });
  return all.sort((a, b) => a[0] - b[0]);
}

// The first wakeup from a time on.
function firstAt(wakeups, when) {
  let low = 0, high = wakeups.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (wakeups[middle][0] < when) low = middle + 1;
    else high = middle;
  }
  return low;
}

// What is said of a point of a lane: the event that is there alone, or the shares of several; and why the
// thread was off its processor.
function told(trace, lane, from, to) {
  if (to < lane.from || from > lane.to) return "";
  const names = lane.kind === "region" ? trace.regions : trace.calls;
  const lines = spoken(trace, lane, from, to, names, lane.kind === "region" ? "region" : "call");
  if (lane.kind === "region") return lines;
  const off = lane.off ? spoken(trace, lane.off, from, to, [...OFF, ...OFF].map(o => o[0]), "time") : "";
  return [lines || (off ? "" : "the program runs"), off].filter(x => x).join("\n");
}

function spoken(trace, lane, from, to, names, noun) {
  const found = [];
  for (let i = after(lane.events, from); i < lane.events.length && lane.events[i][2] < to; i++) found.push(lane.events[i]);
  const each = (trace.end - trace.begin) / trace.times;
  const sums = (lane.sums || []).filter(([n]) => trace.begin + (n + 1) * each > from && trace.begin + n * each < to);
  if (!found.length && !sums.length) return "";
  if (found.length === 1 && !sums.length) {
    const [name, path, start, length, result] = found[0];
    const off = noun === "time", waker = off ? trace.wakers[result] : undefined;
    const ends = result === false ? " (unfinished)" : result === undefined || off ? "" : " = " + result;
    const by = waker === undefined ? "" : `\nwoken by ${trace.lanes[waker]?.title ?? waker}`;
    const within = off || trace.paths[path] === "outside of regions" ? "" : "\n" + trace.paths[path];
    return `${names[name]}${ends}: ${time(length)} from ${time(start)}${within}${by}`;
  }
  const shares = new Map();
  const put = (name, ns, count) => {
    const row = shares.get(names[name]) || [0, 0];
    shares.set(names[name], [row[0] + ns, row[1] + count]);
  };
  for (const [name, , start, length] of found) put(name, Math.max(0, Math.min(to, start + length) - Math.max(from, start)), 1);
  for (const [n, name, ns] of sums) {
    const at = trace.begin + n * each;
    put(name, ns / each * Math.max(0, Math.min(to, at + each) - Math.max(from, at)), 0);
  }
  const rows = [...shares].sort((a, b) => b[1][0] - a[1][0]).slice(0, 6);
  const lines = rows.map(([name, [ns, count]]) => `${percent(ns / (to - from))} ${name}${count ? `, ${counted(count, noun)}` : ""}`);
  return `${noun === "time" ? "" : `${time(to - from)} from ${time(from)}\n`}${lines.join("\n")}`;
}

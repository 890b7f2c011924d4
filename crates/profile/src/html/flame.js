// The flame graph: the whole time of the chosen threads by path. Each frame is a bar of its time by state, so
// that its colours are its time on and off a processor.

const FRAME = 19;
// Frames that are narrower than this are not drawn, in points; those below the second are drawn together with
// their neighbours of the same colour. The fewest letters of a name.
const STILL = { narrow: 0.5, thin: 4, letters: 4 };
// While the picture moves, it has less detail.
const MOVING = { narrow: 2, thin: 8, letters: 16 };

// The tree of the chosen threads, with the time of each node by state. `of` are the times of threads at nodes.
function sumUp(graph, threads, region) {
  const n = graph.at.length, S = STATES.length;
  const tree = { parents: graph.parents, at: graph.at, sums: new Float64Array(n * S), calls: new Float64Array(n), samples: new Float64Array(n) };
  const inside = new Uint8Array(n);
  inside[0] = region < 0;
  for (let i = 1; i < n; i++) inside[i] = inside[graph.parents[i]] || graph.at[i] === region;
  for (const { times } of threads) {
    for (let t = 0; t < times.length; t += 4) {
      const node = times[t];
      if (!inside[node]) continue;
      tree.sums[node * S + times[t + 1]] += times[t + 2];
      (graph.called[node] ? tree.calls : tree.samples)[node] += times[t + 3];
    }
  }
  return tree;
}

// The same times from the innermost frames on: callers are below.
function inverted(tree) {
  const S = STATES.length;
  const parents = [0], at = [0], children = [new Map()], sums = Array(S).fill(0), calls = [0], samples = [0];
  for (let node = 0; node < tree.at.length; node++) {
    let some = 0;
    for (let s = 0; s < S; s++) some += tree.sums[node * S + s];
    if (!some) continue;
    let here = 0;
    for (let from = node; from > 0; from = tree.parents[from]) {
      let next = children[here].get(tree.at[from]);
      if (next === undefined) {
        next = at.length;
        children[here].set(tree.at[from], next);
        parents.push(here);
        at.push(tree.at[from]);
        children.push(new Map());
        calls.push(0);
        samples.push(0);
        for (let s = 0; s < S; s++) sums.push(0);
      }
      here = next;
    }
    for (let s = 0; s < S; s++) sums[here * S + s] += tree.sums[node * S + s];
    calls[here] += tree.calls[node];
    samples[here] += tree.samples[node];
  }
  return { parents, at, sums: Float64Array.from(sums), calls: Float64Array.from(calls), samples: Float64Array.from(samples) };
}

// Adds to each node the times below it, and gives each its place: children stand in the order of their most
// frequent states, so that equal colours stand together, and then of their times.
function layOut(tree, states) {
  const n = tree.at.length, S = STATES.length;
  for (let i = n - 1; i > 0; i--) {
    const up = tree.parents[i];
    for (let s = 0; s < S; s++) tree.sums[up * S + s] += tree.sums[i * S + s];
    tree.calls[up] += tree.calls[i];
    tree.samples[up] += tree.samples[i];
  }
  tree.total = new Float64Array(n);
  tree.most = new Uint8Array(n);
  tree.depth = new Uint16Array(n);
  tree.x = new Float64Array(n);
  tree.kids = new Array(n);
  for (let i = 0; i < n; i++) {
    let best = 0;
    for (let s = 0; s < S; s++) {
      if (!states[s]) continue;
      const ns = tree.sums[i * S + s];
      tree.total[i] += ns;
      if (ns > best) [best, tree.most[i]] = [ns, s];
    }
    if (!i || !tree.total[i]) continue;
    const up = tree.parents[i];
    tree.depth[i] = tree.depth[up] + 1;
    (tree.kids[up] ??= []).push(i);
  }
  for (let i = 0; i < n; i++) {
    let x = tree.x[i];
    tree.kids[i]?.sort((a, b) => tree.most[a] - tree.most[b] || tree.total[b] - tree.total[a]);
    for (const kid of tree.kids[i] || []) {
      tree.x[kid] = x;
      x += tree.total[kid];
    }
  }
  return tree;
}

function flame() {
  const graph = data.flame;
  const S = STATES.length;
  if (!graph.threads.some(t => t.times.length)) return null;
  graph.called = graph.at.map((frame, i) => graph.frames[frame][1] === "syscall" || null);
  for (let i = 1; i < graph.at.length; i++) graph.called[i] ||= graph.called[graph.parents[i]];

  const part = section("All wall time by call path");
  part.id = "flame";
  const ui = controls(part, graph);
  const now = make("div", part, null, { className: "now" });
  const way = make("div", now, null, { className: "way" });
  const status = make("span", now);
  const matched = make("span", now, "", { className: "matched" });
  for (const said of [status, matched]) said.setAttribute("aria-live", "polite");
  const box = make("div", part, null, { className: "flame" });
  const space = make("div", box);
  const canvas = make("canvas", space, null, { tabIndex: 0, ariaLabel: "flame graph; arrow keys select a frame, Enter shows it alone" });
  const help = make("p", part, null, { className: "note keys" });
  for (const [key, what] of [["/", "search"], ["Enter, n, N", "next match"], ["click, Enter", "zoom"], ["Esc", "back"], ["arrows", "select"], ["i", "invert"], ["0", "all"]]) {
    make("kbd", help, key);
    make("span", help, what);
  }
  const pen = canvas.getContext("2d");
  // The chosen threads and tree; the frame that is shown alone and the one that is selected; the window in time.
  let chosen, tree, label, top = 0, picked = -1, from = 0, to = 1, moving = 0;
  let wanted = null, under = null, matches = [];
  const shown = Array(S).fill(true);
  const self = { canvas, ui, matched, choose, search, zoom, place, pick, get tree() { return tree; }, get matches() { return matches; } };
  const name = i => i ? graph.frames[tree.at[i]][0] : "all";

  // The threads, the region, the direction, the states.
  function choose() {
    chosen = ui.threads(graph.threads);
    tree = sumUp(graph, chosen, ui.region());
    if (ui.invert.checked) tree = inverted(tree);
    layOut(tree, shown);
    top = 0;
    picked = -1;
    [from, to] = [0, tree.total[0] || 1];
    tree.deepest = deepest(0);
    label = `${ui.whole(chosen)}: ${time(tree.total[0])}`;
    ui.said(chosen, graph.threads, sum(Array.from(tree.sums.subarray(0, S))));
    states.update(tree.sums, shown);
    search();
  }

  function search() {
    const text = ui.search.value;
    wanted = text ? pattern(text) : null;
    ui.search.classList.toggle("bad", !!text && !wanted);
    matches = [];
    under = null;
    let found = 0;
    if (wanted) {
      const good = graph.frames.map(([frame]) => wanted.test(frame));
      under = new Uint8Array(tree.at.length);
      for (let i = 1; i < tree.at.length; i++) {
        const up = under[tree.parents[i]];
        const match = good[tree.at[i]] && tree.total[i] > 0;
        if (match) matches.push(i);
        if (match && !up) found += tree.total[i];
        under[i] = match ? 2 : up ? 1 : 0;
      }
      matches.sort((a, b) => tree.total[b] - tree.total[a]);
    }
    matched.textContent = wanted ? `${percent(ratio(found, tree.total[0]) ?? 0)} of the time, ${time(found)}, in ${counted(matches.length, "frame")}` : text ? "no regular expression" : "";
    canvas.dataset.matched = found;
    tell();
    draw();
  }

  // The deepest row with more than some points of frames while a frame is shown alone.
  function deepest(alone) {
    const point = tree.total[alone] / (canvas.clientWidth || innerWidth);
    const rows = [];
    const inside = new Uint8Array(tree.at.length);
    inside[alone] = 1;
    for (let i = alone; i < tree.at.length; i++) {
      inside[i] ||= i && inside[tree.parents[i]] && tree.total[i] >= STILL.narrow * point;
      if (inside[i]) rows[tree.depth[i]] = (rows[tree.depth[i]] || 0) + tree.total[i];
    }
    return Math.max(tree.depth[alone], rows.findLastIndex(ns => ns >= 6 * point));
  }

  function zoom(i) {
    top = i;
    // The page below does not move back and forth.
    tree.deepest = Math.max(tree.deepest, deepest(i));
    const target = [tree.x[i], tree.x[i] + tree.total[i] || 1], start = [from, to];
    const began = performance.now();
    cancelAnimationFrame(moving);
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const step = now => {
      const done = still ? 1 : Math.min(1, Math.max(0, (now - began) / 160));
      const eased = done * (2 - done);
      [from, to] = start.map((a, k) => a + (target[k] - a) * eased);
      draw(done < 1);
      if (done < 1) moving = requestAnimationFrame(step);
    };
    step(began);
    trail();
    tell();
  }

  // The way to the frame that is shown alone.
  function trail() {
    way.replaceChildren();
    const steps = [];
    for (let i = top; i > 0; i = tree.parents[i]) steps.unshift(i);
    for (const i of [0, ...steps]) {
      button(way, name(i), () => zoom(i), { disabled: i === top });
    }
  }

  function pick(i) {
    picked = i;
    if (i >= 0) {
      const y = tree.depth[i] * FRAME;
      if (y < box.scrollTop) box.scrollTop = y;
      if (y + FRAME > box.scrollTop + box.clientHeight) box.scrollTop = y + FRAME - box.clientHeight;
    }
    tell();
    draw();
  }

  // A line about the selected frame, or about the one that is shown alone.
  function tell() {
    const i = picked >= 0 ? picked : top;
    status.textContent = i ? describe(i) : "";
    canvas.dataset.top = name(top);
    canvas.dataset.picked = picked < 0 ? "" : name(picked);
    canvas.dataset.whole = tree.total[0];
    canvas.dataset.time = tree.total[i];
  }

  function describe(i) {
    const [, , module, line] = graph.frames[tree.at[i]];
    const where = line || module ? ` (${line || module})` : "";
    return `${name(i)}${where}: ${time(tree.total[i])}, ${percent(ratio(tree.total[i], tree.total[0]))} of ${time(tree.total[0])}`;
  }

  // What the pointer says of a frame.
  function fill(i) {
    return box => {
      const [, kind, module, line] = graph.frames[tree.at[i]];
      make("b", box, i ? name(i) : ui.whole(chosen));
      const what = { syscall: "system call", kernel: "function of the kernel", region: "region", state: "" }[kind] ?? "";
      const where = i ? [what, line, module].filter(x => x).join(", ") : "";
      if (where) make("div", box, where, { className: "soft" });
      const counts = [[tree.calls[i], "call"], [tree.samples[i], "sample"]].filter(([n]) => n).map(([n, noun]) => counted(n, noun));
      make("div", box, [time(tree.total[i]), percent(ratio(tree.total[i], tree.total[0])), ...counts].join(", "));
      list(box, Array.from(tree.sums.subarray(i * S, i * S + S), (ns, s) => shown[s] ? ns : 0), tree.total[i]);
    };
  }

  // The frame at a point of the canvas, or -1.
  function at(x, y) {
    const depth = Math.floor((y + box.scrollTop) / FRAME);
    const when = from + (to - from) * x / Math.max(1, canvas.clientWidth);
    let i = 0;
    if (when < 0 || when >= tree.total[0]) return -1;
    while (tree.depth[i] < depth) {
      i = (tree.kids[i] || []).findLast(kid => tree.x[kid] <= when && when < tree.x[kid] + tree.total[kid]) ?? -1;
      if (i < 0) return -1;
    }
    return i;
  }

  // Where a frame is on the screen: the middle of what is seen of it. For tests and for the keyboard.
  function place(i) {
    const wide = canvas.clientWidth / (to - from);
    const left = Math.max(0, (tree.x[i] - from) * wide), right = Math.min(canvas.clientWidth, (tree.x[i] + tree.total[i] - from) * wide);
    return { x: (left + right) / 2, y: tree.depth[i] * FRAME - box.scrollTop + FRAME / 2, wide: right - left };
  }

  const painter = framePainter(pen, graph);
  function draw(moves) {
    const most = Math.round(innerHeight * 0.8);
    const whole = (tree.deepest + 1) * FRAME;
    const high = Math.max(FRAME, Math.min(whole, most));
    if (space.style.height !== whole + "px") {
      space.style.height = whole + "px";
      box.style.height = high + "px";
      canvas.style.height = high + "px";
    }
    const wide = canvas.clientWidth;
    const scale = fitCanvas(canvas, wide, high);
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, wide, high);
    painter.begin(tree, shown, under, wide, scale, moves === true ? MOVING : STILL);
    const { narrow } = moves === true ? MOVING : STILL;
    const zoomed = wide / (to - from), scroll = box.scrollTop;
    const waiting = [0];
    let drawn = 0;
    while (waiting.length) {
      const i = waiting.pop();
      const left = (tree.x[i] - from) * zoomed, long = tree.total[i] * zoomed;
      if (long < narrow || left >= wide || left + long <= 0) continue;
      const y = tree.depth[i] * FRAME - scroll;
      if (y > high) continue;
      if (y + FRAME > 0) {
        painter.frame(i, left, long, y, i ? graph.frames[tree.at[i]][0] : label);
        drawn++;
      }
      const kids = tree.kids[i];
      if (kids) for (let k = kids.length - 1; k >= 0; k--) if (tree.total[kids[k]] * zoomed >= narrow) waiting.push(kids[k]);
    }
    painter.end();
    if (picked >= 0) {
      const spot = place(picked);
      pen.lineWidth = 2;
      pen.strokeStyle = painter.text;
      pen.strokeRect(spot.x - spot.wide / 2 + 1, spot.y - FRAME / 2 + 1, Math.max(2, spot.wide - 3), FRAME - 3);
    }
    canvas.dataset.drawn = drawn;
  }

  const point = event => [event.offsetX, event.offsetY];
  canvas.addEventListener("pointermove", event => {
    const i = at(...point(event));
    canvas.style.cursor = i < 0 ? "default" : "pointer";
    if (i < 0) hide();
    else show(event, fill(i));
  });
  canvas.addEventListener("pointerleave", hide);
  canvas.addEventListener("click", event => {
    hide();
    const i = at(...point(event));
    picked = -1;
    if (i >= 0) zoom(i === top ? 0 : i);
  });
  box.addEventListener("scroll", () => { hide(); draw(); });
  addEventListener("resize", () => { if (tree) draw(); });
  dark.addEventListener("change", () => { painter.colours(); draw(); });

  function move(key) {
    const now = picked >= 0 ? picked : top;
    if (picked < 0) return pick(now);
    const row = tree.kids[tree.parents[now]] || [];
    const k = row.indexOf(now);
    const next = {
      ArrowUp: now ? tree.parents[now] : now, ArrowDown: largest(tree, now) ?? now,
      ArrowLeft: now ? row[k - 1] ?? now : now, ArrowRight: now ? row[k + 1] ?? now : now,
    }[key];
    pick(next);
    const spot = place(next);
    if (spot.wide < 3) zoom(tree.parents[next]);
  }
  function nextMatch(step) {
    if (!matches.length) return;
    const k = matches.indexOf(picked);
    const next = matches[(k < 0 ? (step > 0 ? 0 : matches.length - 1) : k + step + matches.length) % matches.length];
    if (place(next).wide < 3 || tree.x[next] < from || tree.x[next] >= to) zoom(commonParent(tree, next));
    pick(next);
  }
  function back() {
    if (ui.search.value) {
      ui.search.value = "";
      search();
    } else if (picked >= 0) pick(-1);
    else if (top) zoom(0);
    else if (ui.only.value) {
      ui.only.value = "";
      choose();
    }
  }
  addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target.closest?.("input[type=search], select, textarea");
    const here = event.target === canvas;
    const done = () => event.preventDefault();
    if (event.key === "Escape") {
      if (event.target === ui.search) canvas.focus({ preventScroll: true });
      back();
    } else if (event.key === "Enter" && event.target === ui.search) nextMatch(event.shiftKey ? -1 : 1);
    else if (typing) return;
    else if (event.key === "/") {
      done();
      part.scrollIntoView({ block: "nearest" });
      ui.search.focus();
      ui.search.select();
    } else if (event.key === "n") nextMatch(1);
    else if (event.key === "N") nextMatch(-1);
    else if (event.key === "i") ui.invert.click();
    else if (event.key === "0") { picked = -1; zoom(0); }
    else if (here && event.key.startsWith("Arrow")) { done(); move(event.key); }
    else if (here && event.key === "Enter" && picked >= 0) zoom(picked);
  });
  ui.search.addEventListener("input", search);
  ui.listen(() => { choose(); trail(); });
  const states = legend(() => { choose(); trail(); }, shown);

  // Another part of the page asks for a place or for threads.
  self.show = (text, threads) => {
    if (threads !== undefined) ui.only.value = threads;
    ui.search.value = text ?? "";
    choose();
    trail();
    if (matches.length) pick(matches[0]);
    part.scrollIntoView({ behavior: "smooth", block: "start" });
  };
  part.dataset.frames = graph.frames.length;
  choose();
  trail();
  return self;
}

const largest = (tree, i) => tree.kids[i]?.reduce((a, b) => tree.total[b] > tree.total[a] ? b : a);
// The nearest frame above that is much wider.
function commonParent(tree, i) {
  let up = tree.parents[i];
  while (up && tree.total[up] < 20 * tree.total[i]) up = tree.parents[up];
  return up && tree.total[up] > 200 * tree.total[i] ? tree.parents[i] : up;
}

// What chooses the times of the flame graph.
function controls(part, graph) {
  const note = make("p", part, "", { className: "note" });
  const tools = make("div", part, null, { className: "tools" });
  const field = (placeholder, label) => make("input", tools, null, { type: "search", placeholder, ariaLabel: label, spellcheck: false });
  const search = field("search: regular expression  ( / )", "search");
  const only = field("threads: name or number", "threads");
  const names = new Map();
  for (const { title } of graph.threads) {
    const name = title.replace(/^(.*: )?\d+ /, "");
    names.set(name, (names.get(name) || 0) + 1);
  }
  const offered = make("datalist", tools, null, { id: "threads" });
  only.setAttribute("list", "threads");
  for (const [name, n] of [...names].sort((a, b) => b[1] - a[1]).slice(0, 100)) if (name) make("option", offered, `${counted(n, "thread")}`, { value: name });
  for (const { title } of graph.threads.slice(0, 200)) make("option", offered, null, { value: title });
  const regions = graph.frames.map((f, i) => [f[0], i]).filter(([, i]) => graph.frames[i][1] === "region");
  const region = make("select", tools, null, { ariaLabel: "region", hidden: !regions.length });
  make("option", region, "all regions", { value: -1 });
  for (const [name, i] of regions.slice(0, 500)) make("option", region, name, { value: i });
  const check = text => {
    const label = make("label", tools);
    const box = make("input", label, null, { type: "checkbox" });
    label.append(" " + text);
    return box;
  };
  const invert = check("inverted (callers below)");
  const asleep = graph.threads.filter(t => t.asleep);
  const sleepers = asleep.length && check(`with ${counted(asleep.length, "thread")} that only sleep${asleep.length === 1 ? "s" : ""}`);
  const withSleepers = () => sleepers && sleepers.checked;
  return {
    search, only, region: () => Number(region.value), regions: region, invert, sleepers,
    threads(all) {
      const text = only.value.trim();
      const awake = all.filter(t => withSleepers() || !t.asleep);
      if (!text) return awake;
      // Who asks for one thread by its title means it.
      const one = all.filter(t => t.title === text);
      const wanted = pattern(text);
      only.classList.toggle("bad", !wanted);
      return one.length ? one : awake.filter(t => wanted && wanted.test(t.title));
    },
    whole: chosen => chosen.length === 1 ? chosen[0].title : counted(chosen.length, "thread"),
    said(chosen, all, inRegion) {
      const ns = threads => sum(threads.map(t => { let n = 0; for (let k = 2; k < t.times.length; k += 4) n += t.times[k]; return n; }));
      let text = `The whole is the wall time of ${counted(chosen.length, "thread")}, ${time(ns(chosen))}, on and off a processor`;
      const left = asleep.filter(t => !chosen.includes(t));
      if (!only.value && left.length) text += `; ${counted(left.length, "thread")} that only sleep${left.length === 1 ? "s" : ""} (${time(ns(left))}) ${left.length === 1 ? "is" : "are"} not in it, as in the sentences`;
      else if (chosen.length < all.length) text += ` (of ${figures(all.length)} threads)`;
      text += ".";
      if (region.value >= 0) text += ` ${region.selectedOptions[0].textContent} is ${time(inRegion)} of it.`;
      if (graph.merged) text += ` The ${figures(graph.merged)} shortest paths of threads are one.`;
      note.textContent = text;
    },
    listen(act) {
      for (const input of [only, region]) input.addEventListener("input", act);
      for (const box of [invert, sleepers]) if (box) box.addEventListener("change", act);
    },
  };
}

// Draws frames.
function framePainter(pen, graph) {
  const S = STATES.length;
  const FONT = '12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace';
  let shades, tree, shown, under, wide, scale, detail, letter;
  // In each row, thin frames of one colour that touch.
  let runs = [];
  const self = { colours, begin, frame, end };
  // Neighbours of one colour differ a little.
  function colours() {
    self.text = paper("--text");
    self.back = paper("--back");
    shades = STATES.map(({ colour }) => [1, 0.955, 0.91].map(light => {
      const parts = [1, 3, 5].map(k => Math.round(parseInt(colour.slice(k, k + 2), 16) * light));
      return `rgb(${parts.join(",")})`;
    }));
  }
  function begin(...now) {
    [tree, shown, under, wide, scale, detail] = now;
    pen.font = FONT;
    pen.textBaseline = "middle";
    letter ??= pen.measureText("M").width;
  }
  function frame(i, left, long, y, label) {
    // Whole points of the screen are drawn faster.
    const x = Math.round(Math.max(0, left) * scale) / scale, end = Math.round(Math.min(wide, left + long) * scale) / scale;
    const faded = under && !under[i];
    if (end - x < detail.thin) return thin(i, x, end, y, faded);
    const w = end - x - 1;
    const total = tree.total[i], shade = tree.at[i] % 3;
    pen.globalAlpha = faded ? 0.22 : 1;
    if (tree.sums[i * S + tree.most[i]] > 0.985 * total) {
      pen.fillStyle = shades[tree.most[i]][shade];
      pen.fillRect(x, y, w, FRAME - 1);
    } else {
      let at = x, done = x;
      for (const state of ORDER) {
        if (!shown[state]) continue;
        at += w * tree.sums[i * S + state] / total;
        const next = Math.round(at * scale) / scale;
        if (next <= done) continue;
        pen.fillStyle = shades[state][shade];
        pen.fillRect(done, y, next - done, FRAME - 1);
        done = next;
      }
    }
    if (w < 6 + letter * detail.letters) return;
    pen.globalAlpha = faded ? 0.6 : 1;
    pen.fillStyle = faded ? self.text : "#14181d";
    const room = Math.floor((w - 6) / letter);
    let text = label;
    const share = i ? percent(total / tree.total[0]) : "";
    // Of an address in a module, the address matters most.
    if (text.length > room) text = text.includes("+0x") ? "\u2026" + text.slice(1 - room) : text.slice(0, room - 1) + "\u2026";
    else if (share && text.length + share.length + 2 <= room && end < wide + 1) {
      pen.globalAlpha *= 0.7;
      pen.fillText(share, end - 5 - share.length * letter, y + FRAME / 2);
      pen.globalAlpha = faded ? 0.6 : 1;
    }
    pen.fillText(text, x + 4, y + FRAME / 2, w - 5);
    if (under && under[i] === 2) {
      pen.lineWidth = 1.5;
      pen.strokeStyle = self.text;
      pen.strokeRect(x + 0.75, y + 0.75, w - 1.5, FRAME - 2.5);
    }
  }
  function thin(i, x, end, y, faded) {
    const row = tree.depth[i], state = tree.most[i], run = runs[row];
    if (run && run.state === state && run.faded === faded && x - run.end <= 1 / scale) {
      run.end = end;
      return;
    }
    if (run) fill(run);
    runs[row] = { x, end, y, state, faded };
  }
  function fill({ x, end, y, state, faded }) {
    pen.globalAlpha = faded ? 0.22 : 1;
    pen.fillStyle = shades[state][1];
    pen.fillRect(x, y, end - x, FRAME - 1);
  }
  function end() {
    runs.forEach(fill);
    runs = [];
    pen.globalAlpha = 1;
  }
  colours();
  return self;
}

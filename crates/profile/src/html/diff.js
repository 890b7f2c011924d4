"use strict";
// The differential flame graph of html/diff.rs. A node: n its name, k its kind, a and b its times in
// nanoseconds, e their noise, x whether they changed, ch its children.

const ROW = 18;
const root = JSON.parse(document.getElementById("data").textContent);
const canvas = document.getElementById("graph");
const said = document.getElementById("said");
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let side = "b";
let shown = root;
let matches = null;
let boxes = [];

(function link(node, parent, depth) {
  node.parent = parent;
  node.depth = depth;
  for (const child of node.ch) link(child, node, depth + 1);
})(root, null, 0);

function time(ns) {
  for (const [unit, name] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"]]) {
    const value = Math.abs(ns) / unit;
    if (value >= 0.9995) {
      const digits = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
      return `${ns < 0 ? "-" : ""}${value.toFixed(digits)} ${name}`;
    }
  }
  return `${ns} ns`;
}

// Blue for less, orange for more: apart for all kinds of colour vision. Stronger for larger parts of
// the longer time.
function colour(node) {
  if (!node.x) return style("--same");
  const part = Math.abs(node.b - node.a) / Math.max(node.a, node.b, 1);
  const light = 82 - 34 * Math.min(1, part);
  return node.b < node.a ? `hsl(212 75% ${light}%)` : `hsl(26 92% ${light}%)`;
}

function text(node) {
  const change = node.b - node.a;
  const noise = node.e === null ? "" : `, noise ${time(node.e)}`;
  const kind = node.k === "syscall" ? " (system call)" : "";
  return `${node.n}${kind}: A ${time(node.a)}, B ${time(node.b)}, change ${change > 0 ? "+" : ""}` +
    `${time(change)}${noise}${node.x ? "" : " (not a change)"}`;
}

function draw() {
  const width = canvas.clientWidth;
  boxes = [];
  const place = (node, left, size, row) => {
    if (size < 0.5) return;
    boxes.push({ node, left, size, row });
    let at = left;
    for (const child of node.ch) {
      const part = node[side] > 0 ? (size * child[side]) / node[side] : 0;
      place(child, at, part, row + 1);
      at += part;
    }
  };
  const outer = [];
  for (let node = shown.parent; node; node = node.parent) outer.unshift(node);
  outer.forEach((node, row) => boxes.push({ node, left: 0, size: width, row }));
  place(shown, 0, width, outer.length);
  const rows = boxes.reduce((most, box) => Math.max(most, box.row + 1), 0);
  const scale = window.devicePixelRatio || 1;
  canvas.style.height = `${rows * ROW}px`;
  canvas.width = width * scale;
  canvas.height = rows * ROW * scale;
  const ctx = canvas.getContext("2d");
  ctx.scale(scale, scale);
  ctx.font = "12px system-ui, sans-serif";
  ctx.textBaseline = "middle";
  const neutral = style("--ink");
  for (const { node, left, size, row } of boxes) {
    ctx.globalAlpha = matches && !matches.has(node) ? 0.25 : row < shown.depth ? 0.6 : 1;
    ctx.fillStyle = colour(node);
    ctx.fillRect(left, row * ROW, Math.max(size - 0.5, 0.5), ROW - 1);
    const letters = Math.floor((size - 6) / 6.6);
    if (letters >= 3) {
      const name = node.n.length > letters ? node.n.slice(0, letters - 1) + "…" : node.n;
      ctx.fillStyle = node.x ? "#111" : neutral;
      ctx.fillText(name, left + 3, row * ROW + ROW / 2, size - 6);
    }
  }
  ctx.globalAlpha = 1;
}

function at(event) {
  const row = Math.floor(event.offsetY / ROW);
  return boxes.find((b) => b.row === row && event.offsetX >= b.left && event.offsetX < b.left + b.size);
}

function zoom(node) {
  shown = node;
  said.textContent = text(node);
  draw();
}

function search(pattern) {
  let wanted = null;
  try {
    wanted = pattern ? new RegExp(pattern, "i") : null;
  } catch (wrong) {
    said.textContent = wrong.message;
    return;
  }
  matches = wanted ? new Set() : null;
  const sum = { a: 0, b: 0 };
  (function mark(node, inside) {
    const hit = wanted && wanted.test(node.n);
    if (hit) matches.add(node);
    if (hit && !inside) {
      sum.a += node.a;
      sum.b += node.b;
    }
    for (const child of node.ch) mark(child, inside || hit);
  })(root, false);
  said.textContent = wanted ? `Matches: A ${time(sum.a)}, B ${time(sum.b)}` : "";
  draw();
}

canvas.addEventListener("mousemove", (event) => {
  const box = at(event);
  canvas.title = box ? text(box.node) : "";
  if (box) said.textContent = text(box.node);
});
canvas.addEventListener("click", (event) => {
  const box = at(event);
  if (box) zoom(box.node);
});
// Keys: to the parent, the longest child, the neighbours.
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") return zoom(root);
  if (document.activeElement !== canvas) return;
  const siblings = shown.parent ? shown.parent.ch.filter((n) => n[side] > 0) : [shown];
  const index = siblings.indexOf(shown);
  const next = {
    ArrowUp: shown.parent,
    ArrowDown: [...shown.ch].sort((x, y) => y[side] - x[side])[0],
    ArrowLeft: siblings[index - 1],
    ArrowRight: siblings[index + 1],
  }[event.key];
  if (next) {
    event.preventDefault();
    zoom(next);
  }
});
for (const input of document.querySelectorAll("input[name=width]")) {
  input.addEventListener("change", () => {
    side = input.value;
    zoom(shown[side] > 0 ? shown : root);
  });
}
document.getElementById("search").addEventListener("input", (event) => search(event.target.value));
document.getElementById("reset").addEventListener("click", () => zoom(root));
window.addEventListener("resize", draw);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  legend();
  draw();
});

function legend() {
  for (const [id, node] of [
    ["less", { x: true, a: 1, b: 0 }],
    ["same", { x: false }],
    ["more", { x: true, a: 0, b: 1 }],
  ]) {
    document.getElementById(id).style.background = colour(node);
  }
}
legend();
zoom(root);

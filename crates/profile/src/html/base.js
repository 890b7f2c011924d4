// What all parts of the page use. Names come from programs that were recorded: they are put in as text only.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
// The report, as --json prints it.
const report = data.report;
const main = document.getElementById("main");
const tip = document.getElementById("tip");

// The states of a thread, and the one meaning of each colour. They are those of Okabe and Ito, which eyes of all
// kinds tell apart: warm on a processor, cool off it.
const USER = 0, KERNEL = 1, TAKEN = 2, READY = 3, LOCK = 4, BLOCKED = 5, IDLE = 6, RESIDUAL = 7;
const STATES = data.flame.states.map((name, i) => ({
  name, colour: ["#e69f00", "#d55e00", "#f0e442", "#009e73", "#cc79a7", "#56b4e9", "#cfe6f5", "#a3a9b0"][i],
}));
// On a processor, off it, unknown.
const ORDER = STATES.map((_, i) => i);
// The state of a part of the time.
const STATE_OF = { user: USER, syscall_cpu: KERNEL, blocked: BLOCKED, runnable: READY };
const stateOf = key => STATE_OF[key] ?? TAKEN;

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
  if (note) make("p", part, note, { className: "note" });
  return part;
}

function button(parent, text, act, more) {
  const node = make("button", parent, text, { type: "button", className: "plain", ...more });
  node.addEventListener("click", act);
  return node;
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
const format = new Intl.NumberFormat("en");
const figures = n => format.format(n);
const counted = (n, noun) => `${figures(n)} ${noun}${n === 1 ? "" : "s"}`;
// The name with the largest number.
const longest = times => Object.entries(times).reduce((a, b) => b[1] >= a[1] ? b : a, ["", 0])[0];

// A regular expression without regard to case; null if the text is none.
function pattern(text) {
  try { return new RegExp(text, "i"); } catch { return null; }
}

// A square in the colour of a state.
function swatch(parent, state) {
  make("i", parent, null, { className: "swatch" }).style.background = STATES[state].colour;
}

// Times by state as pieces of a bar, `whole` long.
function stack(parent, times, whole) {
  const bar = make("span", parent, null, { className: "bar" });
  let at = 0;
  const stops = [];
  for (const state of ORDER) {
    if (!(times[state] > 0)) continue;
    const next = at + 100 * times[state] / whole;
    stops.push(`${STATES[state].colour} ${at}% ${next}%`);
    at = next;
  }
  if (stops.length) bar.style.background = `linear-gradient(to right, ${stops.join(", ")}, transparent ${at}%)`;
  return bar;
}

// What is said of a thing while the pointer is on it.
function hint(node, fill) {
  node.addEventListener("pointermove", event => show(event, fill));
  node.addEventListener("pointerleave", hide);
}
function hide() { tip.hidden = true; }
function show(event, fill) {
  tip.replaceChildren();
  if (typeof fill === "string") tip.textContent = fill;
  else fill(tip);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const below = event.clientY + 18 + box.height < innerHeight;
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
  tip.style.top = Math.max(4, below ? event.clientY + 18 : event.clientY - box.height - 10) + "px";
}

// Times by state, one a line, with their shares.
function list(parent, times, whole) {
  const grid = make("div", parent, null, { className: "states" });
  for (const state of ORDER) {
    if (!(times[state] > 0)) continue;
    swatch(grid, state);
    make("span", grid, STATES[state].name);
    make("span", grid, time(times[state]), { className: "number" });
    make("span", grid, percent(ratio(times[state], whole)), { className: "number" });
  }
}

// Offers a text as a file.
function save(name, text, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// The colours of the page itself, which follow the user's choice of light or dark.
function paper(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name);
}
const dark = matchMedia("(prefers-color-scheme: dark)");

// Fits a canvas to its place, in points of the screen.
function fitCanvas(canvas, wide, high) {
  const scale = Math.min(devicePixelRatio || 1, 30000 / Math.max(high, 1));
  const [w, h] = [Math.round(wide * scale), Math.round(high * scale)];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  return scale;
}

// Tables: rows filter, sort and export; columns that say the same in each row are left out.

// Rows that are shown at first, and then more of.
const ROWS = 20;

// Columns: the head; the value that sorts and is exported; its text, if that differs; what draws in the cell.
// A head that ends in " (ns)" is that of a time. `act` is called for a row that is clicked.
function table(title, rows, columns, { note, act } = {}) {
  if (!rows.length) return;
  const part = section(title, note);
  columns = columns.map(([name, value, text, draw]) => ({
    name: name.replace(/ \(ns\)$/, ""), long: name, value, draw,
    text: text || (name.endsWith(" (ns)") ? ns => ns === null || ns === undefined ? "" : ns ? time(ns) : "0" : null),
    isText: typeof value(rows[0]) === "string",
  }));
  columns = columns.filter((column, i) => i === 0 || varies(rows, column));
  const tools = make("div", part, null, { className: "tools" });
  const words = rows.length > 6 && make("input", tools, null, {
    type: "search", placeholder: `filter ${figures(rows.length)} rows`, ariaLabel: `filter of ${title}`,
  });
  const box = make("div", part, null, { className: "scroll" });
  const grid = make("table", box);
  const head = make("tr", make("thead", grid));
  const body = make("tbody", grid);
  const foot = make("div", part, null, { className: "tools" });
  let order = [...rows], limit = ROWS, shown = rows;
  const more = button(foot, "", () => { limit *= 20; fill(); });
  button(tools, "CSV", () => save(fileName(title), csv(columns, shown), "text/csv"),
    { title: "save these rows as comma-separated values, times in nanoseconds" });

  function fill() {
    const wanted = words && words.value ? pattern(words.value) : null;
    if (words) words.classList.toggle("bad", !!words.value && !wanted);
    const texts = row => columns.filter(c => c.isText).map(c => c.value(row)).join("\n");
    shown = wanted ? order.filter(row => wanted.test(texts(row))) : order;
    body.replaceChildren();
    for (const row of shown.slice(0, limit)) {
      const line = make("tr", body);
      for (const { value, text, draw, isText } of columns) {
        const v = value(row);
        const said = text ? text(v, row) : typeof v === "number" ? figures(v) : v ?? "";
        const cell = make("td", line, said, isText ? { className: "text", title: v } : {});
        if (draw) draw(cell, row);
      }
      if (act) act(line, row);
    }
    more.hidden = shown.length <= limit;
    more.textContent = `${counted(shown.length - limit, "more row")}`;
    grid.dataset.rows = shown.length;
    measure();
  }
  columns.forEach(({ name, value, isText }) => {
    const cell = make("th", head, null, isText ? { className: "text" } : {});
    make("button", cell, name, { type: "button" }).addEventListener("click", () => {
      const was = cell.getAttribute("aria-sort");
      const up = was ? was === "descending" : isText;
      for (const other of head.children) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", up ? "ascending" : "descending");
      const compare = isText
        ? (a, b) => value(a).localeCompare(value(b))
        : (a, b) => (value(a) ?? -1) - (value(b) ?? -1);
      order.sort((a, b) => up ? compare(a, b) : compare(b, a));
      fill();
    });
  });
  const measure = fit(tools, box, grid);
  if (words) words.addEventListener("input", fill);
  fill();
}

// Whether a column says anything: not the same in each row.
function varies(rows, { value, text, isText }) {
  const none = v => !v || v === "-" || v === "outside of regions";
  if (rows.every(row => none(value(row)))) return false;
  if (rows.length < 3 || (!isText && text)) return true;
  const first = value(rows[0]);
  return rows.some(row => value(row) !== first);
}

// Columns that have no room are hidden, from the last on, until somebody asks for them.
function fit(tools, box, grid) {
  let all = false;
  const more = button(tools, "", () => { all = true; measure(); }, { hidden: true });
  const show = count => {
    for (const line of grid.rows) [...line.cells].forEach((cell, i) => { cell.hidden = i >= count; });
  };
  function measure() {
    const columns = grid.tHead.rows[0].cells.length;
    let count = columns;
    show(count);
    if (!all && grid.offsetWidth > box.clientWidth) {
      const ends = [...grid.tHead.rows[0].cells].map(cell => cell.offsetLeft + cell.offsetWidth);
      count = Math.max(2, ends.filter(end => end <= box.clientWidth).length);
      show(count);
    }
    while (!all && count > 2 && grid.offsetWidth > box.clientWidth) show(--count);
    grid.dataset.columns = count;
    more.hidden = count === columns;
    more.textContent = counted(columns - count, "more column");
  }
  addEventListener("resize", measure);
  return measure;
}

const fileName = title => title.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-") + ".csv";

// Rows as RFC 4180 has them. A text that a spreadsheet would take for a formula starts with an apostrophe.
function csv(columns, rows) {
  const cell = value => {
    let text = String(value ?? "");
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = "'" + text;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = [columns.map(c => cell(c.long)), ...rows.map(row => columns.map(c => cell(c.value(row))))];
  return lines.map(line => line.join(",") + "\r\n").join("");
}

// The histogram of a row's durations: a bar for each power of two of nanoseconds.
function histogram(cell, group, first, end) {
  cell.textContent = "";
  const box = make("span", cell, null, { className: "histogram" });
  const most = Math.max(1, ...group.histogram);
  for (let place = first; place < end; place++) {
    const n = group.histogram[place] || 0;
    const bar = make("i", make("b", box));
    bar.style.height = n ? Math.max(6, 100 * n / most) + "%" : "0";
    hint(bar.parentNode, `${group.name}\n${counted(n, "call")} from ${time(place ? 2 ** place : 0)} to ${time(2 ** (place + 1))}`);
  }
}

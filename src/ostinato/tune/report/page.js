"use strict";
// The table of results. Its rows are made when they are scrolled to: a hundred at a time.
(() => {
  const { columns, rows } = JSON.parse(document.getElementById("results").textContent);
  const STEP = 100;
  const status = columns.findIndex((column) => column.kind === "status");
  const scroll = document.querySelector(".scroll");
  const [head, body] = [scroll.querySelector("thead tr"), scroll.querySelector("tbody")];
  const shownCount = document.getElementById("shown");
  const search = document.getElementById("search");
  const hidden = new Set();
  let order = null; // [column, 1 or -1]; null: as the report ranks them
  let visible = rows;
  let made = 0;

  const duration = (ns) => {
    const [size, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]].find(([size]) => ns >= size) ?? [1, "ns"];
    return `${Number((ns / size).toPrecision(4))} ${unit}`;
  };
  const written = {
    time: duration,
    ratio: (value) => value.toPrecision(4),
    percent: (value) => `${(100 * value).toFixed(1)} %`,
  };
  const compared = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a) < String(b) ? -1 : 1);

  const more = () => {
    const part = document.createDocumentFragment();
    for (const row of visible.slice(made, made + STEP)) {
      const line = document.createElement("tr");
      if (String(row[0]).startsWith("winner")) line.className = "winner";
      columns.forEach(({ kind }, index) => {
        const cell = line.insertCell();
        const value = row[index];
        if (value === null) return;
        const text = written[kind]?.(value) ?? String(value);
        if (kind === "status") {
          const key = document.createElement("span");
          key.className = `key k-${value}`;
          cell.append(key);
        }
        cell.append(text);
        cell.className = typeof value === "number" ? "right" : kind;
        if (kind === "message" || kind === "value") cell.title = text;
      });
      part.append(line);
    }
    made = Math.min(made + STEP, visible.length);
    body.append(part);
  };

  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const named = (row) => columns.map(({ name, kind }, i) => (kind === "value" ? `${name}=${row[i]}` : row[i])).join(" ");
    visible = rows.filter((row) => {
      if (hidden.has(row[status])) return false;
      const text = words.length ? ` ${named(row)} `.toLowerCase() : "";
      return words.every((word) => text.includes(word.includes("=") ? ` ${word} ` : word));
    });
    if (order) {
      const [column, sign] = order;
      visible.sort((a, b) => {
        const [x, y] = [a[column], b[column]];
        if (x === y) return 0;
        if (x === null || y === null) return x === null ? 1 : -1; // what is not there is last, always
        return sign * compared(x, y);
      });
    }
    body.replaceChildren();
    made = 0;
    scroll.scrollTop = 0;
    more();
    shownCount.textContent = `${visible.length} of ${rows.length} shown`;
  };

  columns.forEach(({ name, kind, about }, index) => {
    const cell = document.createElement("th");
    const button = document.createElement("button");
    button.textContent = name;
    cell.title = about ?? "";
    if (rows.some((row) => typeof row[index] === "number")) cell.className = "right";
    button.addEventListener("click", () => {
      order = order?.[0] === index ? (order[1] === 1 ? [index, -1] : null) : [index, 1];
      for (const other of head.children) other.removeAttribute("aria-sort");
      if (order) cell.setAttribute("aria-sort", order[1] === 1 ? "ascending" : "descending");
      show();
    });
    cell.append(button);
    head.append(cell);
  });
  for (const button of document.querySelectorAll(".chips button")) {
    button.addEventListener("click", () => {
      const name = button.dataset.status;
      if (!hidden.delete(name)) hidden.add(name);
      button.setAttribute("aria-pressed", String(!hidden.has(name)));
      show();
    });
  }
  search.addEventListener("input", show);
  scroll.addEventListener("scroll", () => {
    while (made < visible.length && scroll.scrollTop + 2 * scroll.clientHeight > scroll.scrollHeight) more();
  });
  show();
})();

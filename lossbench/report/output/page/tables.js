// --- Tables: sorted by a click on a column, filtered by the page's filter, copied as CSV; a row opens its cells.

const NEXT = { none: "ascending", ascending: "descending", descending: "none" };
const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

function cellValue(cell, numeric) {
  if (!numeric) return cell.textContent;
  const written = cell.dataset.n ?? cell.textContent;
  return written.trim() === "" || Number.isNaN(Number(written)) ? null : Number(written);
}

// Rows without a value come last in both directions; equal rows keep the order of the report.
function sortBy(table, rows, header, column) {
  const direction = NEXT[header.getAttribute("aria-sort")];
  for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
  header.setAttribute("aria-sort", direction);
  if (direction === "none") { table.tBodies[0].append(...rows); return; }
  const numeric = !header.classList.contains("l");
  const way = direction === "ascending" ? 1 : -1;
  const keyed = rows.map((row) => [cellValue(row.cells[column], numeric), row]);
  keyed.sort(([a], [b]) => {
    const gaps = (a === null || a === "" || a === "–") - (b === null || b === "" || b === "–");
    return gaps || (numeric ? way * (a - b || 0) : way * collator.compare(a, b));
  });
  table.tBodies[0].append(...keyed.map(([, row]) => row));
}

const csvField = (written) => (/[",\n]/.test(written) ? `"${written.replaceAll('"', '""')}"` : written);
const shownText = (cell) => cell.textContent.trim();

async function copy(written) {
  try { await navigator.clipboard.writeText(written); return true; } catch { /* an old browser, or blocked */ }
  const area = make("textarea", { value: written, className: "unseen" });
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

const brieflySaid = (button, said) => {
  const before = button.dataset.name ?? button.textContent;
  button.dataset.name = before;
  button.textContent = said;
  setTimeout(() => { button.textContent = before; }, 1500);
};

function enhance(card) {
  const table = card.querySelector("table");
  const rows = [...table.tBodies[0].rows];
  const heads = [...table.tHead.rows[0].cells];
  const names = heads.map(shownText);
  heads.forEach((header, column) => {
    const button = make("button", { type: "button", className: "sort" }, ...header.childNodes);
    button.addEventListener("click", () => sortBy(table, rows, header, column));
    header.setAttribute("aria-sort", "none");
    header.append(button);
  });
  const at = names.indexOf("loss");
  const opening = Math.max(0, at);
  for (const row of rows) {
    if (!row.dataset.g) continue;
    const cell = row.cells[opening];
    const button = make("button", { type: "button", className: "cells", title: "Show the cells behind this row" }, ...cell.childNodes);
    button.setAttribute("aria-haspopup", "dialog");
    cell.append(button);
  }
  const count = make("output", { className: "count" });
  const copyButton = make("button", { type: "button", className: "quiet" }, "Copy CSV");
  copyButton.addEventListener("click", async () => {
    const seen = [table.tHead.rows[0], ...table.tBodies[0].rows].filter((row) => !row.classList.contains("out"));
    const written = seen.map((row) => [...row.cells].map((cell) => csvField(shownText(cell))).join(",")).join("\n");
    brieflySaid(copyButton, (await copy(`${written}\n`)) ? "Copied" : "Blocked by the browser");
  });
  if (rows.length > 3) card.append(make("div", { className: "tools" }, count, copyButton));
  let texts = null;
  return () => {
    if (!state.q && !state.off.length && texts === null) { count.textContent = counted(rows.length, "row"); return; }
    texts ??= new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
    const caption = (card.dataset.about ?? "").toLowerCase();
    let shown = 0;
    for (const row of rows) {
      const hidden = at >= 0 && state.off.includes(shownText(row.cells[at]));
      const fit = !hidden && fits(`${texts.get(row)} ${caption}`, state.q);
      row.classList.toggle("out", !fit);
      shown += fit;
    }
    count.textContent = shown < rows.length ? `${shown} of ${counted(rows.length, "row")}` : counted(rows.length, "row");
    card.classList.toggle("none", !shown);
  };
}

function watchTables(openCells) {
  const filters = [...document.querySelectorAll(".card")].map(enhance);
  document.addEventListener("click", (event) => {
    const row = event.target.closest?.("tr[data-g]");
    const button = row?.querySelector("button.cells");
    if (!button) return;
    if (event.target.closest("button") === button || (!event.target.closest("button, a") && !String(getSelection()))) {
      button.focus(); // focus returns here when the dialog closes
      openCells(row.dataset.g.split(" ").map(Number));
    }
  });
  document.addEventListener("keydown", (event) => {
    const button = event.target.closest?.("button.cells");
    const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    if (!button || !step) return;
    let next = button.closest("tr")[step];
    while (next && (next.classList.contains("out") || !next.dataset.g)) next = next[step];
    next?.querySelector("button.cells")?.focus();
    event.preventDefault();
  });
  return () => filters.forEach((filter) => filter());
}

"use strict";
// A theme, sorted and filtered tables, and the cells behind each row. Text enters the page only through textContent, so
// nothing in a suite, a loss or a log can become markup.
(() => {
  const THEME = "lossbench-theme";
  const root = document.documentElement;

  // --- theme, set before the first paint
  const remembered = () => { try { return localStorage.getItem(THEME); } catch { return null; } };
  const remember = (value) => { try { localStorage.setItem(THEME, value); } catch { /* storage is blocked */ } };
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  if (["dark", "light"].includes(remembered())) root.dataset.theme = remembered();
  root.classList.add("js");

  const make = (tag, properties = {}, ...children) => {
    const node = Object.assign(document.createElement(tag), properties);
    node.append(...children);
    return node;
  };

  function themeButton() {
    const button = document.getElementById("theme-toggle");
    const label = () => { button.textContent = isDark() ? "Light theme" : "Dark theme"; };
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      remember(root.dataset.theme);
      label();
    });
    system.addEventListener("change", label);
    label();
  }

  // --- tables
  const NEXT = { none: "ascending", ascending: "descending", descending: "none" };
  const words = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

  function value(cell, numeric) {
    if (!numeric) return cell.textContent;
    const text = cell.dataset.n ?? cell.textContent;
    return text.trim() === "" || Number.isNaN(Number(text)) ? null : Number(text);
  }

  // Rows without a value come last in both directions; equal rows keep the order of the report.
  function sortBy(table, rows, header, column) {
    const direction = NEXT[header.getAttribute("aria-sort")];
    for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
    header.setAttribute("aria-sort", direction);
    if (direction === "none") { table.tBodies[0].append(...rows); return; }
    const numeric = !header.classList.contains("l");
    const sign = direction === "ascending" ? 1 : -1;
    const keyed = rows.map((row) => [value(row.cells[column], numeric), row]);
    keyed.sort(([a], [b]) => {
      const gaps = (a === null || a === "" || a === "–") - (b === null || b === "" || b === "–");
      return gaps || (numeric ? sign * (a - b || 0) : sign * words.compare(a, b));
    });
    table.tBodies[0].append(...keyed.map(([, row]) => row));
  }

  // A row must contain every word, and none that follows a minus.
  function fits(text, query) {
    return query.toLowerCase().split(/\s+/).filter(Boolean).every((word) =>
      word.length > 1 && word.startsWith("-") ? !text.includes(word.slice(1)) : text.includes(word));
  }

  const csvField = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const shownText = (cell) => cell.textContent.trim();

  async function copy(text) {
    try { await navigator.clipboard.writeText(text); return true; } catch { /* an old browser, or blocked */ }
    const area = make("textarea", { value: text, className: "unseen" });
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }

  function enhance(card) {
    const table = card.querySelector("table");
    const rows = [...table.tBodies[0].rows];
    [...table.tHead.rows[0].cells].forEach((header, column) => {
      const button = make("button", { type: "button", className: "sort" }, ...header.childNodes);
      button.addEventListener("click", () => sortBy(table, rows, header, column));
      header.setAttribute("aria-sort", "none");
      header.append(button);
    });
    if (rows.length > 5) card.prepend(tools(card, table, rows)); // a few rows need no filter
  }

  function tools(card, table, rows) {
    const count = make("output", { className: "count" });
    const input = make("input", { type: "search", placeholder: "Filter rows", autocomplete: "off" });
    input.setAttribute("aria-label", `Filter rows: ${card.dataset.name}`);
    const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
    const apply = () => {
      let shown = 0;
      for (const row of rows) {
        const fit = fits(texts.get(row), input.value);
        row.classList.toggle("out", !fit);
        shown += fit;
      }
      count.textContent = input.value.trim() ? `${shown} of ${rows.length} rows` : `${rows.length} rows`;
    };
    input.addEventListener("input", apply);
    apply();
    const copyButton = make("button", { type: "button", className: "quiet" }, "Copy CSV");
    copyButton.addEventListener("click", async () => {
      const seen = [table.tHead.rows[0], ...table.tBodies[0].rows].filter((row) => !row.classList.contains("out"));
      const text = seen.map((row) => [...row.cells].map((cell) => csvField(shownText(cell))).join(",")).join("\n");
      copyButton.textContent = (await copy(`${text}\n`)) ? "Copied" : "Blocked by the browser";
      setTimeout(() => { copyButton.textContent = "Copy CSV"; }, 1500);
    });
    return make("div", { className: "tools" }, input, count, copyButton);
  }

  // --- the cells behind a row
  function panel() {
    const dialog = document.getElementById("panel");
    const data = JSON.parse(document.getElementById("panel-data").textContent);
    const cells = data.cells.map((row) => Object.fromEntries(data.fields.map((name, i) => [name, row[i]])));
    const BAD = new Set(["failed", "diverged", "oom", "timeout"]);
    const tone = (status) => (BAD.has(status) ? "bad" : status === "done" ? "good" : "open");
    const badge = (text, kind) => make("span", { className: `badge ${kind}` }, text);
    const fixed = (number, digits) => (number === null ? "–" : number.toFixed(digits));
    const signed = (number) => (number === null ? "–" : (number < 0 ? "" : "+") + number.toFixed(2));

    function spark(curve, top) {
      if (curve.length < 2) return "–";
      const svg = document.getElementById("panel-curve").content.firstElementChild.cloneNode(true);
      const points = curve.map((loss, i) => `${(70 * i / (curve.length - 1) + 1).toFixed(1)},${(19 - 18 * loss / top).toFixed(1)}`);
      svg.firstElementChild.setAttribute("points", points.join(" "));
      svg.setAttribute("aria-label", `training loss from ${curve[0]} to ${curve.at(-1)}`);
      return svg;
    }

    function path(run, folder, key, rest) {
      const prefix = data.runs.length > 1 ? `${data.runs[run]}/` : "";
      return make("code", {}, `${prefix}${folder}/`, make("b", {}, key), rest);
    }

    function cellTable(mine, others, name) {
      const bySeed = new Map((others ?? []).map((cell) => [cell.seed, cell.accuracy]));
      const compared = others !== null && mine.some((cell) => cell.accuracy !== null);
      const heads = ["seed", "status", "accuracy, %", ...(compared ? ["Δ points"] : []), "seconds", "flags", "loss curve", "files"];
      const top = Math.max(...mine.flatMap((cell) => cell.curve), 1e-9);
      const body = make("tbody");
      let first = true;
      for (const cell of mine) {
        const other = bySeed.get(cell.seed) ?? null;
        const delta = cell.accuracy === null || other === null ? null : cell.accuracy - other;
        const row = make("tr", {},
          make("td", {}, String(cell.seed)),
          make("td", { className: "l" }, badge(cell.status, tone(cell.status))),
          make("td", {}, fixed(cell.accuracy, 2)),
          ...(compared ? [make("td", {}, signed(delta))] : []),
          make("td", {}, fixed(cell.seconds, 1)),
          make("td", { className: "l" }, cell.flags.join(", ") || "–"),
          make("td", { className: "l" }, spark(cell.curve, top)),
          make("td", { className: "l files" },
            ...(cell.status === "missing" ? [make("code", {}, make("b", {}, cell.key)), " not run yet"] : [
              path(cell.run, "cells", cell.key, "/record.json"), path(cell.run, "logs", cell.key, ".log")])));
        body.append(row);
        if (cell.note !== null) {
          // The last line, which usually says why; the lines before it on demand, or at once for the first such cell.
          const text = data.notes[cell.note];
          const log = make("pre", { tabIndex: 0 }, text);
          const why = make("details", { open: first }, make("summary", {}, text.split("\n").at(-1)), log);
          body.append(make("tr", { className: "note" }, make("td", { className: "l", colSpan: heads.length }, why)));
          first = false;
        }
      }
      const left = new Set(["status", "flags", "loss curve", "files"]);
      const head = make("tr", {}, ...heads.map((text) => {
        const th = make("th", { className: left.has(text) ? "l" : "" }, text);
        th.scope = "col";
        return th;
      }));
      const box = make("div", { className: "scroll", tabIndex: 0 }, make("table", {}, make("thead", {}, head), body));
      box.setAttribute("role", "region");
      box.setAttribute("aria-label", `Cells of ${name}`);
      return box;
    }

    const counted = (number) => `${number} ${number === 1 ? "cell" : "cells"}`;

    function summary(mine) {
      const done = mine.filter((cell) => cell.status === "done");
      const known = done.filter((cell) => cell.accuracy !== null);
      const mean = known.length ? `, mean accuracy ${(known.reduce((sum, cell) => sum + cell.accuracy, 0) / known.length).toFixed(2)} %` : "";
      return `${done.length} of ${counted(mine.length)} done${mean}`;
    }

    // Each part: a group, its cells, those of the loss that it is compared with (or null), and a summary of them.
    function show(title, parts) {
      document.getElementById("panel-title").textContent = title;
      const body = document.getElementById("panel-body");
      body.replaceChildren(...parts.flatMap(([group, mine, others, said]) => [
        make("h3", {}, data.groups[group].loss),
        make("p", { className: "caption" }, `${data.groups[group].where}. ${said}.`),
        cellTable(mine, others, data.groups[group].loss),
      ]));
      const runs = data.runs.length > 1 ? "Paths start with the run folder" : `Paths are relative to ${data.runs[0]}`;
      body.append(make("p", { className: "caption" }, `${runs}. Curves show the training loss; all curves of a table share one scale.`));
      dialog.showModal();
      body.scrollTop = 0;
      for (const log of body.querySelectorAll("pre")) log.scrollTop = log.scrollHeight; // the end of a log matters most
    }

    const grouped = (index) => cells.filter((cell) => cell.group === index);

    function open(row) {
      const indices = row.dataset.g.split(" ").map(Number);
      const sets = indices.map(grouped);
      const paired = indices.length === 2 && indices.every((index) => data.groups[index].kind === "train");
      const losses = [...new Set(indices.map((index) => data.groups[index].loss))];
      show(losses.join(" against "), indices.map((index, i) => [index, sets[i], paired && i === 0 ? sets[1] : null, summary(sets[i])]));
    }

    for (const row of document.querySelectorAll("tr[data-g]")) {
      const heads = [...row.closest("table").tHead.rows[0].cells].map(shownText);
      const cell = row.cells[Math.max(0, heads.indexOf("loss"))];
      const button = make("button", { type: "button", className: "open", title: "Show the cells behind this row" }, ...cell.childNodes);
      button.setAttribute("aria-haspopup", "dialog");
      cell.append(button);
      row.addEventListener("click", (event) => {
        const chosen = String(getSelection());
        if (event.target.closest("button") === button || (!event.target.closest("button, a") && !chosen)) {
          button.focus(); // focus returns here when the dialog closes
          open(row);
        }
      });
      button.addEventListener("keydown", (event) => {
        const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
        if (!step) return;
        let next = row[step];
        while (next && next.classList.contains("out")) next = next[step];
        next?.querySelector("button.open")?.focus();
        event.preventDefault();
      });
    }

    for (const chip of document.querySelectorAll("[data-status]")) {
      const status = chip.dataset.status;
      const button = make("button", { type: "button", className: chip.className }, ...chip.childNodes);
      button.setAttribute("aria-haspopup", "dialog");
      button.addEventListener("click", () => {
        const mine = cells.filter((cell) => cell.status === status);
        const indices = [...new Set(mine.map((cell) => cell.group))];
        const parts = indices.map((index) => [index, mine.filter((cell) => cell.group === index)]);
        show(`Cells: ${status}`, parts.map(([index, part]) => [index, part, null, counted(part.length)]));
      });
      chip.replaceWith(button);
    }

    document.getElementById("panel-close").addEventListener("click", () => dialog.close());
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  }

  // --- the current section in the table of contents
  function follow() {
    const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
    const seen = new Set();
    // The last sections cannot reach the top of the window: there the section of the address is the current one.
    const asked = () => {
      const section = document.getElementById(location.hash.slice(1));
      const atEnd = scrollY + innerHeight >= root.scrollHeight - 2;
      return atEnd && section && links.has(section.id) && section.getBoundingClientRect().top >= 0 ? section.id : null;
    };
    const update = () => {
      const here = asked() ?? [...links.keys()].find((slug) => seen.has(slug));
      if (!here) return;
      for (const [slug, link] of links) {
        if (slug === here) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
      }
    };
    const watch = new IntersectionObserver((changes) => {
      for (const change of changes) seen[change.isIntersecting ? "add" : "delete"](change.target.id);
      update();
    }, { rootMargin: "-10% 0px -60% 0px" });
    for (const section of document.querySelectorAll("main > section")) watch.observe(section);
    addEventListener("scrollend", update);
    addEventListener("hashchange", update);
  }

  document.addEventListener("DOMContentLoaded", () => {
    themeButton();
    document.querySelectorAll(".card").forEach(enhance);
    panel();
    follow();
  });
})();

// --- The cells behind a mark or a row: a dialog with a plot of the paired seeds and a table of the cells.

const BAD = new Set(["failed", "diverged", "oom", "timeout"]);
const statusTone = (status) => (BAD.has(status) ? "bad" : status === "done" ? "good" : "open");

const groupKey = (index) => {
  const group = data.groups[index];
  return [data.points[group.point].key, group.label, group.kind].join(" | ");
};

function spark(curve, top) {
  if (curve.length < 2) return "–";
  const points = curve.map((loss, i) => `${((70 * i) / (curve.length - 1) + 1).toFixed(1)},${(19 - (18 * loss) / top).toFixed(1)}`);
  return draw("svg", { class: "spark", viewBox: "0 0 72 20", role: "img", "aria-label": `training loss from ${curve[0]} to ${curve.at(-1)}` }, draw("polyline", { points: points.join(" ") }));
}

function filePath(run, folder, key, rest) {
  const prefix = data.drill.runs.length > 1 ? `${data.drill.runs[run]}/` : "";
  return make("code", {}, `${prefix}${folder}/`, make("b", {}, key), rest);
}

// The metric that a dialog shows: the chosen one if its cells have it, else the first.
const metricOf = (cells) => {
  const at = chosen.metric();
  return cells.some((cell) => known(cell.values[at])) ? at : 0;
};

function cellTable(mine, others, name, at) {
  const metric = data.metrics[at];
  const bySeed = new Map((others ?? []).map((cell) => [cell.seed, cell.values[at]]));
  const compared = others !== null && mine.some((cell) => known(cell.values[at]));
  const heads = ["seed", "status", `${titled(metric)}${metric.score ? ", %" : metric.unit ? `, ${metric.unit}` : ""}`, ...(compared ? [`Δ${unitOf(metric)}`] : []), "seconds", "flags", "loss curve", "files"];
  const top = Math.max(...mine.flatMap((cell) => cell.curve), 1e-9);
  const body = make("tbody");
  let first = true;
  for (const cell of mine) {
    const [value, other] = [cell.values[at], bySeed.get(cell.seed)];
    const delta = known(value) && known(other) ? value - other : null;
    body.append(make("tr", {},
      make("td", {}, String(cell.seed)),
      make("td", { className: "l" }, badge(cell.status, statusTone(cell.status))),
      make("td", {}, fixed(value, metric.digits)),
      ...(compared ? [make("td", {}, signed(delta, metric.digits))] : []),
      make("td", {}, fixed(cell.seconds, 1)),
      make("td", { className: "l" }, cell.flags.join(", ") || "–"),
      make("td", { className: "l" }, spark(cell.curve, top)),
      make("td", { className: "l files" },
        ...(cell.status === "missing" ? [make("code", {}, make("b", {}, cell.key)), " not run yet"] : [
          filePath(cell.run, "cells", cell.key, "/record.json"), filePath(cell.run, "logs", cell.key, ".log")]))));
    if (cell.note !== null) {
      // The last line, which usually says why; the lines before it on demand, or at once for the first such cell.
      const written = data.drill.notes[cell.note];
      const log = make("pre", { tabIndex: 0 }, written);
      const why = make("details", { open: first }, make("summary", {}, written.split("\n").at(-1)), log);
      body.append(make("tr", { className: "note" }, make("td", { className: "l", colSpan: heads.length }, why)));
      first = false;
    }
  }
  const left = new Set(["status", "flags", "loss curve", "files"]);
  const head = make("tr", {}, ...heads.map((written) => {
    const th = make("th", { className: left.has(written) ? "l" : "" }, written);
    th.scope = "col";
    return th;
  }));
  const box = make("div", { className: "scroll", tabIndex: 0 }, make("table", {}, make("thead", {}, head), body));
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", `Cells of ${name}`);
  return box;
}

// Both sides by seed, a line for each pair; then the differences around zero.
function pairedPlot(first, second, mine, others, at, width) {
  const metric = data.metrics[at];
  const bySeed = new Map(others.map((cell) => [cell.seed, cell]));
  const pairs = mine.filter((cell) => known(cell.values[at]) && known(bySeed.get(cell.seed)?.values[at]))
    .map((cell) => ({ seed: cell.seed, a: cell.values[at], b: bySeed.get(cell.seed).values[at] }))
    .map((pair) => ({ ...pair, delta: pair.a - pair.b }));
  if (pairs.length < 2) return null;
  const gain = (pair) => sign(metric) * pair.delta;
  const won = pairs.filter((pair) => gain(pair) > 0).length;
  const tied = pairs.filter((pair) => pair.delta === 0).length;
  const mean = pairs.reduce((sum, pair) => sum + pair.delta, 0) / pairs.length;
  const height = 250;
  const [top, bottom] = [26, height - 16];
  const half = Math.floor(Math.min(width, 860) / 2);
  const names = [data.groups[second], data.groups[first]].map((group) => (data.groups[first].label === data.groups[second].label ? data.points[group.point].experiment : group.label));
  const [low, high] = padded([least(pairs.map((pair) => Math.min(pair.a, pair.b))), most(pairs.map((pair) => Math.max(pair.a, pair.b)))]);
  const y = scale(low, high, bottom, top);
  const found = ticks(low, high, 5);
  const left = most(found.map(([, written]) => widthOf(written, 11))) + 14;
  const [x0, x1] = [left + 0.16 * (half - left), half - 0.2 * (half - left)];
  const about = (pair) => ({
    title: `seed ${pair.seed}`,
    rows: [[names[1], valued(metric, pair.a)], [names[0], valued(metric, pair.b)], ["difference", changed(metric, pair.delta)]],
  });
  const tone = (pair) => (pair.delta === 0 ? "even" : gain(pair) > 0 ? "good" : "bad");
  const slopes = pairs.map((pair) => mark(draw("g", { class: `slope tone-${tone(pair)}` },
    line(x0, y(pair.b), x1, y(pair.a), "hit line-hit"), line(x0, y(pair.b), x1, y(pair.a), "line"),
    shape("o", x0, y(pair.b), 3.6, { class: "solid" }), shape("o", x1, y(pair.a), 3.6, { class: "solid" })), about(pair)));
  const left2 = half + 64;
  const [dLow, dHigh] = padded([Math.min(0, least(pairs.map((pair) => pair.delta))), Math.max(0, most(pairs.map((pair) => pair.delta)))], 0.1);
  const y2 = scale(dLow, dHigh, bottom, top);
  const x2 = scale(-0.5, pairs.length - 0.5, left2, Math.min(width, 860) - 58);
  const stems = [...pairs].sort((a, b) => b.delta - a.delta).map((pair, index) => mark(draw("g", { class: `slope tone-${tone(pair)}` },
    draw("rect", { x: x2(index) - 6, y: top, width: 12, height: bottom - top, class: "hit" }),
    line(x2(index), y2(0), x2(index), y2(pair.delta), "line"), shape("o", x2(index), y2(pair.delta), 4, { class: "solid" })), about(pair)));
  const svg = drawing(Math.min(width, 860), height, "Paired seeds",
    leftAxis(y, left, found, half - left - 10), text(x0, 14, fitting(names[0], half / 2), "small strong", "middle"), text(x1, 14, fitting(names[1], half / 2), "small strong", "middle"), slopes,
    leftAxis(y2, left2, ticks(dLow, dHigh, 5), Math.min(width, 860) - 58 - left2), line(left2, y2(0), Math.min(width, 860) - 58, y2(0), "zero"),
    text((left2 + Math.min(width, 860) - 58) / 2, 14, "difference by seed", "small strong", "middle"),
    line(left2, y2(mean), Math.min(width, 860) - 58, y2(mean), "mean"), text(Math.min(width, 860) - 54, y2(mean) + 4, signed(mean, metric.digits), "small strong"), stems);
  const said = `${names[1]} is better on ${won} of ${counted(pairs.length, "seed")}${tied ? `, equal on ${tied}` : ""}; mean difference ${changed(metric, mean)}`;
  return make("div", { className: "paired" }, make("p", { className: "finding" }, said), make("p", { className: "caption" }, `${capital(titled(metric))} of both sides; each line is one seed. Dashed: the mean difference.`), svg);
}

function summary(mine, at) {
  const done = mine.filter((cell) => cell.status === "done");
  const values = done.map((cell) => cell.values[at]).filter(known);
  const metric = data.metrics[at];
  const mean = values.length ? `, mean ${titled(metric)} ${valued(metric, values.reduce((sum, value) => sum + value, 0) / values.length)}` : "";
  return `${done.length} of ${counted(mine.length, "cell")} done${mean}`;
}

function cellsDialog() {
  const dialog = byId("panel");
  const body = byId("panel-body");

  // Each part: a group, its cells, and those of the loss that it is compared with (or null).
  function show(title, parts, paired) {
    byId("panel-title").textContent = title;
    const at = metricOf(parts.flatMap(([, mine]) => mine));
    if (!dialog.open) dialog.showModal();
    const plot = paired ? pairedPlot(parts[0][0], parts[1][0], parts[0][1], parts[1][1], at, body.clientWidth - 40) : null;
    body.replaceChildren(...(plot ? [plot] : []), ...parts.flatMap(([group, mine, others]) => {
      const place = data.points[data.groups[group].point];
      return [
        make("h3", {}, data.groups[group].label),
        make("p", { className: "caption" }, `${place.experiment} · ${place.where}. ${summary(mine, at)}.`),
        cellTable(mine, others, data.groups[group].label, at),
      ];
    }));
    const runs = data.drill.runs.length > 1 ? "Paths start with the run folder" : `Paths are relative to ${data.drill.runs[0]}`;
    body.append(make("p", { className: "caption" }, `${runs}. Curves show the training loss; all curves of a table share one scale.`));
    body.scrollTop = 0;
    for (const log of body.querySelectorAll("pre")) log.scrollTop = log.scrollHeight; // the end of a log matters most
  }

  function showGroups(indices) {
    const sets = indices.map((index) => data.grouped.get(index) ?? []);
    const paired = indices.length === 2 && indices.every((index) => data.groups[index].kind === "train");
    const labels = [...new Set(indices.map((index) => data.groups[index].label))];
    show(labels.join(" against "), indices.map((index, i) => [index, sets[i], paired && i === 0 ? sets[1] : null]), paired);
  }

  function showStatus(status) {
    const mine = data.cells.filter((cell) => cell.status === status);
    const indices = [...new Set(mine.map((cell) => cell.group))];
    show(`Cells: ${status}`, indices.map((index) => [index, mine.filter((cell) => cell.group === index), null]), false);
  }

  // What the address asks for; groups that the report does not have are passed over.
  function restore() {
    const [first] = state.cells;
    if (!first) { if (dialog.open) dialog.close(); return; }
    if (first.startsWith("status:")) { showStatus(first.slice(7)); return; }
    const keys = new Map(data.groups.map((group) => [groupKey(group.index), group.index]));
    const indices = state.cells.map((key) => keys.get(key)).filter(known);
    if (indices.length) showGroups(indices);
  }

  for (const chip of document.querySelectorAll("[data-status]")) {
    const { status } = chip.dataset;
    const button = make("button", { type: "button", className: chip.className }, ...chip.childNodes);
    button.setAttribute("aria-haspopup", "dialog");
    button.addEventListener("click", () => choose({ cells: [`status:${status}`] }, { push: true }));
    chip.replaceWith(button);
  }
  byId("panel-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("close", () => { if (state.cells.length) choose({ cells: [] }); });
  return { restore, open: (indices) => choose({ cells: indices.map(groupKey) }, { push: true }) };
}

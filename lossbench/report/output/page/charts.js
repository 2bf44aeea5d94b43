// --- The charts. Each is a function of what is chosen and of its width, and gives a title that states the finding, a
// subtitle with n, intervals and units, and drawings.

const ROW = 25;
const unitOf = (metric) => (metric.unit ? ` ${metric.unit}` : "");
const valueUnit = (metric) => (metric.score ? " %" : unitOf(metric));
const valued = (metric, value) => `${fixed(value, metric.digits)}${valueUnit(metric)}`;
const changed = (metric, delta) => `${signed(delta, metric.digits)}${unitOf(metric)}`;
const sign = (metric) => (metric.up ? 1 : -1);
const titled = (metric) => (metric.rounds ? "step time" : metric.title);
const seedsOf = (rows, what = "seeds") => {
  const counts = rows.map((row) => row.n).filter(known);
  if (!counts.length) return "";
  const [few, many] = [least(counts), most(counts)];
  return few === many ? `n = ${many} ${what}` : `n = ${few}–${many} ${what}`;
};
// The levels of the intervals of some comparisons, in percent; 95 where none is stated.
const intervalsOf = (rows) => {
  const levels = new Set(rows.map((row) => row.level).filter(known));
  if (!levels.size) return "95 % intervals";
  return levels.size === 1 ? `simultaneous ${Number((100 * [...levels][0]).toPrecision(3))} % intervals` : "simultaneous intervals";
};
const where = (point) => [["experiment", point.key], ["at", point.where]];

function aboutDifference(row, metric, point) {
  const write = (value) => signed(value, metric.digits);
  const needed = row.needed?.length ? [["seeds needed", row.needed.join("–")]] : [];
  const timing = metric.rounds ? data.timing.get(point.index) : undefined;
  return {
    title: data.labels[row.loss],
    verdict: row.verdict,
    rows: [
      ["difference", `${changed(metric, row.delta)} of ${titled(metric)}`],
      ["interval", spanned(row.low, row.high, write)],
      ...(known(row.median) ? [["median", write(row.median)]] : []),
      ...(known(row.worst) ? [["worst seed", write(row.worst)]] : []),
      ["against", baseName()],
      [metric.rounds ? "paired rounds" : "paired seeds", String(row.n)],
      ...(known(row.wins) ? [["seeds won", `${row.wins} of ${row.n}`]] : []),
      ...needed,
      ...where(point),
    ],
    notes: row.flags ? row.flags.split("; ") : [],
    groups: known(timing) ? [timing] : data.behind(point.index, row.loss, 0),
  };
}

function aboutMean(row, metric, point, more = []) {
  return {
    title: data.labels[row.loss],
    rows: [
      [titled(metric), valued(metric, row.mean)],
      ["interval", spanned(row.low, row.high, (value) => fixed(value, metric.digits))],
      ["seeds", String(row.n)],
      ...more,
      ...where(point),
    ],
    groups: data.behind(point.index, row.loss),
  };
}

// --- 1. every loss against the baseline

function panelsChosen(metric) {
  const has = new Set(data.differences.filter((row) => row.metric === metric).map((row) => row.point));
  const some = data.points.filter((point) => has.has(point.index));
  const one = some.filter((point) => point.experiment === state.panels);
  if (one.length) return one;
  const chief = some.filter((point) => point.chief);
  const all = chief.length ? chief : some;
  if (state.panels === "all") return all;
  const first = some.filter((point) => point.answer).sort((a, b) => a.answer[0] - b.answer[0]);
  return first.length ? first : all;
}

function differences(width) {
  const metric = data.metrics[chosen.metric()];
  const rows = data.differences.filter((row) => row.metric === chosen.metric());
  const panels = panelsChosen(chosen.metric()).map((point) => {
    const mine = rows.filter((row) => row.point === point.index && isShown(row.loss, wordsOf(point), row.verdict, row.flags));
    return { point, rows: mine.sort((a, b) => sign(metric) * (b.delta - a.delta)) };
  }).filter((panel) => panel.rows.length);
  const all = panels.flatMap((panel) => panel.rows);
  if (!all.length) return nothing(rows.length ? "No comparison matches the filter" : `No comparison of ${titled(metric)}`);
  // Panels stand side by side; one with long labels takes the whole width.
  const needed = (panel) => most(panel.rows.map((row) => widthOf(data.labels[row.loss]))) + 14;
  const usual = panels.map(needed).filter((room) => room <= 190);
  const labelRoom = usual.length ? most(usual) : Math.min(most(panels.map(needed)), 340);
  const columns = width < 620 || !usual.length ? 1 : Math.max(1, Math.min(3, usual.length, Math.floor((width + 28) / (labelRoom + 128 + 190))));
  const each = Math.floor((width - 28 * (columns - 1)) / columns);
  const margin = chosen.metric() === 0 ? data.margin : null;
  const nodes = panels.map((panel) => {
    const long = columns > 1 && needed(panel) > labelRoom;
    const node = differencePanel(panel, metric, margin, long ? width : each, long ? Math.min(needed(panel), 340) : labelRoom);
    if (long) node.style.gridColumn = "1 / -1";
    return node;
  });
  const grid = make("div", { className: "panels" }, ...nodes);
  grid.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
  const band = known(margin) ? ` Band: ±${margin}${unitOf(metric)}, the differences that count as equivalent.` : "";
  return {
    title: differenceFinding(panels, all, metric),
    subtitle: `${capital(titled(metric))} minus that of ${baseName()}${metric.unit ? `, in ${metric.unit}` : ""}. Dots with ${intervalsOf(all)}, paired by ${metric.rounds ? "round" : "seed"}; sorted by effect. ${metric.up ? "Right" : "Left"} of zero is better.${band}`,
    nodes: [grid],
    legend: ["better", "equivalent", "undecided", "worse", "not testable"].filter((word) => all.some((row) => row.verdict === word)),
    note: "* one seed decides. Each panel has its own scale. An arrow marks what lies beyond it; the value is at the right.",
  };
}

function differencePanel({ point, rows }, metric, margin, width, labelRoom) {
  const narrow = width < 430;
  const height = narrow ? 42 : ROW;
  const valueRoom = narrow ? 8 : 128;
  const [left, right, top] = [narrow ? 8 : labelRoom, width - valueRoom, 4];
  const bottom = top + rows.length * height;
  const intervals = rows.map((row) => [row.low ?? row.delta, row.delta, row.high ?? row.delta]);
  const [low, high] = padded(range(intervals, known(margin) ? [-1.15 * margin, 1.15 * margin] : [0]));
  const x = scale(low, high, left + 8, right - 10);
  const kept = (value) => Math.max(low, Math.min(high, value));
  const found = ticks(low, high, Math.max(3, Math.floor((right - left) / 60)));
  const base = data.means.find((row) => row.point === point.index && row.loss === 0 && data.metrics[row.metric] === metric);
  const drawn = rows.map((row, index) => {
    const y = top + index * height + (narrow ? 29 : height / 2);
    const worst = VERDICT[row.verdict].tone;
    const written = [
      draw("tspan", {}, signed(row.delta, metric.digits)),
      draw("tspan", { class: `tone-${worst}`, dx: 6 }, `${row.verdict}${row.flags.includes("one seed decides") ? "*" : ""}`),
    ];
    const parts = [draw("rect", { x: 0, y: top + index * height, width, height, class: "hit" })];
    if (known(row.low)) parts.push(line(x(kept(row.low)), y, x(kept(row.high)), y, "interval"));
    if (row.delta < low || (known(row.low) && row.low < low)) parts.push(arrow(left, y, -1));
    if (row.delta > high || (known(row.high) && row.high > high)) parts.push(arrow(right, y, 1));
    if (x.inside(row.delta)) parts.push(verdictMark(row.verdict, x(row.delta), y));
    if (narrow) {
      parts.push(text(0, y - 14, fitting(data.labels[row.loss], width - 150), "name halo"));
      parts.push(draw("text", { x: width, y: y - 14, class: "value", "text-anchor": "end" }, ...written));
    } else {
      parts.push(text(left - 10, y + 4, fitting(data.labels[row.loss], labelRoom - 12), "name", "end"));
      parts.push(draw("text", { x: right + 6, y: y + 4, class: "value" }, ...written));
    }
    return mark(tinted(draw("g", {}, ...parts), row.loss), aboutDifference(row, metric, point));
  });
  const band = known(margin) ? draw("rect", { x: x(Math.max(low, -margin)), y: top, width: x(Math.min(high, margin)) - x(Math.max(low, -margin)), height: bottom - top, class: "band" }) : null;
  const svg = drawing(width, bottom + 24, `Differences from ${baseName()}: ${point.title}`,
    band, bottomAxis(x, bottom, found, bottom - top), x.inside(0) ? line(x(0), top, x(0), bottom, "zero") : null, drawn);
  const level = base ? `${baseName()} ${valued(metric, base.mean)}, ` : "";
  const explore = make("button", { type: "button", className: "title-link", title: "Explore this point" }, point.title);
  explore.addEventListener("click", () => choose({ at: point.key, section: "explore" }, { push: true }));
  return make("div", { className: "panel" }, make("h4", {}, explore), make("p", { className: "about" }, `${level}${seedsOf(rows, metric.rounds ? "rounds" : "seeds")}`), svg);
}

function differenceFinding(panels, rows, metric) {
  const base = baseName();
  const better = rows.filter((row) => row.verdict === "better");
  const worse = rows.filter((row) => row.verdict === "worse");
  const gain = (row) => sign(metric) * row.delta;
  const best = (list) => list.reduce((a, b) => (gain(b) > gain(a) ? b : a));
  const size = (row) => `${Math.abs(row.delta).toFixed(metric.digits)}${unitOf(metric)}`;
  const on = metric === data.metrics[0] ? "" : ` in ${titled(metric)}`;
  if (panels.length === 1) {
    const place = panels[0].point.title;
    if (better.length === 1) return `Only ${data.labels[better[0].loss]} beats ${base}${on} on ${place}, by ${size(better[0])}`;
    if (better.length) return `${better.length} of ${counted(rows.length, "loss", "losses")} beat ${base}${on} on ${place}; ${data.labels[best(better).loss]} gains most, ${size(best(better))}`;
    const ends = rows.map((row) => (sign(metric) > 0 ? row.high : known(row.low) ? -row.low : null));
    const bound = ends.every(known) ? Math.max(0, most(ends)) : null;
    const tail = worse.length ? `; ${counted(worse.length, "is worse", "are worse")}` : "";
    if (known(bound) && bound > 0 && bound <= 2 * data.margin && metric === data.metrics[0]) return `No loss beats ${base} on ${place} by more than ${bound.toFixed(metric.digits)}${unitOf(metric)}${tail}`;
    return `No loss is shown to beat ${base}${on} on ${place}${tail}`;
  }
  const places = new Set(panels.map((panel) => panel.point.experiment)).size === panels.length ? "experiments" : "points";
  const tally = (list) => [...list.reduce((map, row) => map.set(row.loss, (map.get(row.loss) ?? 0) + 1), new Map())].sort((a, b) => b[1] - a[1]);
  const [wins, losses] = [tally(better), tally(worse)];
  const told = ([loss, count], word) => `${data.labels[loss]} is ${word} than ${base}${on} in ${count} of ${panels.length} ${places}`;
  const down = losses.length && losses[0][1] > 1 ? `; ${data.labels[losses[0][0]]} is worse in ${losses[0][1]}` : "";
  if (!wins.length) return `No loss beats ${base}${on} in any of ${panels.length} ${places}${losses.length ? `; ${told(losses[0], "worse")}` : ""}`;
  const ties = wins.filter(([, count]) => count === wins[0][1]);
  if (ties.length > 1 && ties.length <= 3) return `${listed(ties.map(([loss]) => data.labels[loss]))} beat ${base}${on} most often, in ${ties[0][1]} of ${panels.length} ${places}${down}`;
  if (ties.length > 3) return `${ties.length} losses beat ${base}${on} in ${ties[0][1]} of ${panels.length} ${places}${down}`;
  return `${told(wins[0], "better")}${down}`;
}

// --- 2. along an axis

const linesOf = (point) => data.along.filter((entry) => entry.experiment === point.experiment);

function alongAxis(width) {
  const point = chosen.point(true);
  const entries = linesOf(point);
  if (!entries.length) {
    return nothing(`${point.experiment} varies no numeric axis`, data.along.map((entry) => [`${entry.experiment}: ${entry.axis}`, { at: data.points[entry.lines[0].points[0]].key, axis: entry.axis }]));
  }
  const entry = entries.find((one) => one.axis === state.axis) ?? entries[0];
  const fallback = entry.lines.findIndex((one) => one.points.includes(point.index));
  const here = entry.lines[Number(state.line)] && state.line !== "" ? entry.lines[Number(state.line)] : entry.lines[Math.max(fallback, 0)];
  const metric = data.metrics[chosen.metric()];
  const points = here.points.map((index) => data.points[index]);
  const values = points.map((one) => one.axes[entry.axis]);
  const at = new Map(points.map((one, index) => [one.index, index]));
  const mine = (table) => table.filter((row) => row.metric === chosen.metric() && at.has(row.point) && isShown(row.loss, wordsOf(data.points[row.point])));
  const [means, gains] = [mine(data.means), mine(data.differences)];
  if (!means.length && !gains.length) return nothing(`Nothing to show: no loss with ${titled(metric)} matches`);
  const log = values[0] > 0 && values.at(-1) > 4 * values[0];
  const columns = means.length && gains.length && width >= 760 ? 2 : 1;
  const each = Math.floor((width - 28 * (columns - 1)) / columns);
  const setting = { values, log, at, points, metric, entry, minimum: here.minimum };
  const nodes = [];
  const margin = chosen.metric() === 0 ? data.margin : null;
  if (means.length) nodes.push(linePanel(`${capital(titled(metric))}${metric.score ? ", %" : metric.unit ? `, ${metric.unit}` : ""}`, means, "mean", each, setting, aboutMean, null));
  if (gains.length) nodes.push(linePanel(`Difference from ${baseName()}${metric.unit ? `, ${metric.unit}` : ""}`, gains, "delta", each, setting, aboutDifference, margin));
  const grid = make("div", { className: "panels" }, ...nodes);
  grid.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
  return {
    title: axisFinding(entry, points, gains, means, metric),
    subtitle: `${point.experiment}${here.name ? `, ${here.name}` : ""}: ${titled(metric)} along ${entry.axis}${entry.symbol === entry.axis ? "" : ` ${entry.symbol}`}${log ? " (log scale)" : ""}. Bars are 95 % intervals over seeds, ${seedsOf(means.length ? means : gains)}; differences are paired by seed.${known(margin) ? ` Band: ±${margin}${unitOf(metric)}.` : ""}`,
    nodes: [grid],
    note: here.minimum ? "Dashed: the smallest width M = C − 1 at which the weights of C classes can have equal angles." : "",
  };
}

function axisFinding(entry, points, gains, means, metric) {
  const at = (row) => `${entry.symbol} = ${data.points[row.point].axes[entry.axis]}`;
  const decided = gains.filter((row) => row.verdict === "better" || row.verdict === "worse");
  const base = baseName();
  if (decided.length) {
    const top = decided.reduce((a, b) => (Math.abs(b.delta) > Math.abs(a.delta) ? b : a));
    const others = decided.length - 1;
    return `${data.labels[top.loss]} differs most from ${base} at ${at(top)}: ${changed(metric, top.delta)}${others ? `; ${others} of the ${gains.length - 1} other differences ${others === 1 ? "is" : "are"} decided too` : ""}`;
  }
  if (gains.length) return `No difference from ${base} is decided at any ${entry.axis}`;
  const line0 = means.filter((row) => row.loss === means[0].loss);
  return `${capital(titled(metric))} of ${data.labels[means[0].loss]} goes from ${valued(metric, line0[0].mean)} to ${valued(metric, line0.at(-1).mean)}`;
}

// Lines with interval bars; `key` is the value in the middle of each.
function linePanel(title, rows, key, width, { values, log, at, points, metric, entry, minimum }, about, margin) {
  const byLoss = [...new Set(rows.map((row) => row.loss))].sort((a, b) => a - b);
  const labels = byLoss.map((loss) => data.labels[loss]);
  const labelRoom = Math.min(most(labels.map((label) => widthOf(label, 11))) + 16, width < 430 ? 96 : 210);
  const height = Math.max(240, 15 * byLoss.length + 60);
  const [top, bottom] = [8, height - 42];
  const intervals = rows.map((row) => [row.low ?? row[key], row[key], row.high ?? row[key]]);
  const include = key === "delta" ? (known(margin) ? [-margin, margin] : [0]) : [];
  let [low, high] = padded(key === "delta" ? range(intervals, include) : [least(intervals.map((row) => row[0])), most(intervals.map((row) => row[2]))]);
  if (metric.score && key === "mean") [low, high] = [Math.max(low, 0), Math.min(high, 100.5)];
  const found = ticks(low, high, 5);
  const left = most(found.map(([, written]) => widthOf(written, 11))) + 14;
  const right = width - labelRoom;
  const y = scale(low, high, bottom, top);
  const x = scale(values[0], values.at(-1), left + 14, right - 14, log);
  const gap = least(values.slice(1).map((value, index) => x(value) - x(values[index])), right - left);
  const step = Math.min(5, (0.5 * gap) / Math.max(byLoss.length - 1, 1));
  const clip = (value) => Math.max(low, Math.min(high, value));
  const layers = byLoss.map((loss, index) => {
    const shift = step * (index - (byLoss.length - 1) / 2);
    const mine = rows.filter((row) => row.loss === loss).sort((a, b) => at.get(a.point) - at.get(b.point));
    const place = (row) => [x(values[at.get(row.point)]) + shift, y(clip(row[key]))];
    const look = data.losses[loss];
    const path = draw("path", { class: "line", d: `M${mine.map((row) => place(row).map((part) => part.toFixed(1)).join(" ")).join("L")}`, "stroke-dasharray": look.dash.length ? look.dash.map((part) => 2 * part).join(" ") : null });
    const marks = mine.map((row) => {
      const [px, py] = place(row);
      const bar = known(row.low) ? line(px, y(clip(row.low)), px, y(clip(row.high)), "interval thin") : null;
      // Beyond the axis: an arrow in place of the marker, with its value.
      const body = y.inside(row[key]) ? [shape(look.marker, px, py, 4.2, { class: "solid" })]
        : [shape(row[key] < low ? "v" : "^", px, py + (row[key] < low ? -4 : 4), 5, { class: "solid" }), text(px + 8, py + (row[key] < low ? -3 : 11), signed(row[key], metric.digits), "small")];
      return mark(draw("g", {}, draw("circle", { cx: px, cy: py, r: 9, class: "hit" }), bar, ...body), about(row, metric, data.points[row.point]));
    });
    return { loss, last: place(mine.at(-1)), node: tinted(draw("g", { class: "series" }, path, ...marks), loss) };
  });
  const places = dodged(layers.map((layer) => layer.last[1]), 14, top + 6, bottom);
  const names = layers.map((layer, index) => tinted(draw("g", { class: "end" },
    line(layer.last[0] + 6, layer.last[1], right + 2, places[index], "leader"),
    text(right + 5, places[index] + 4, fitting(data.labels[layer.loss], labelRoom - 8, 11), "small")), layer.loss));
  const svg = drawing(width, height, title,
    known(margin) ? draw("rect", { x: left, y: y(Math.min(high, margin)), width: right - left, height: y(Math.max(low, -margin)) - y(Math.min(high, margin)), class: "band" }) : null,
    leftAxis(y, left, found, right - left), bottomAxis(x, bottom, valueTicks(x, values), 0, `${entry.axis}${entry.symbol === entry.axis ? "" : ` ${entry.symbol}`}`),
    key === "delta" && y.inside(0) ? line(left, y(0), right, y(0), "zero") : null,
    minimum && minimum >= values[0] && minimum <= values.at(-1) ? line(x(minimum), top, x(minimum), bottom, "minimum") : null,
    names, layers.map((layer) => layer.node));
  svg.dataset.columns = points.length;
  return make("div", { className: "panel" }, make("h4", {}, title), svg);
}

// --- 3. accuracy against cost

const COSTS = {
  time: { name: "step time", least: "the shortest step", label: () => `step time / step time of ${baseName()}`, write: (value) => `${value.toFixed(2)}×` },
  memory: { name: "head memory", least: "the least head memory", label: () => "bytes of FC layer, class weights and loss state", write: sized },
  peak: { name: "peak memory", least: "the least peak memory", label: () => "memory that training added, at its peak", write: sized },
};

function costsAt(point) {
  const times = data.differences.filter((row) => row.point === point.index && data.metrics[row.metric].rounds);
  const ratio = (value) => 1 + value / 100;
  const found = {
    time: new Map(times.length ? [[0, { value: 1 }], ...times.map((row) => [row.loss, { value: ratio(row.delta), low: known(row.low) ? ratio(row.low) : null, high: known(row.high) ? ratio(row.high) : null, verdict: row.verdict }])] : []),
    memory: new Map(data.at("fronts", point.index).map((row) => [row.loss, { value: row.bytes, chance: row.memory }])),
    peak: new Map(data.at("memory", point.index).filter((row) => known(row.peak)).map((row) => [row.loss, { value: row.peak }])),
  };
  for (const row of data.at("fronts", point.index)) if (found.time.has(row.loss)) found.time.get(row.loss).chance = row.time;
  return found;
}

function againstCost(width) {
  const point = chosen.point();
  const metric = data.metrics[chosen.metric()];
  const costs = costsAt(point);
  const kind = costs[state.cost]?.size ? state.cost : Object.keys(costs).find((name) => costs[name].size);
  const rows = data.at("means", point.index).filter((row) => row.metric === chosen.metric() && kind && costs[kind].has(row.loss) && isShown(row.loss, wordsOf(point)))
    .map((row) => ({ ...row, cost: costs[kind].get(row.loss) }));
  if (!rows.length) return nothing(`No loss of ${point.title} has both ${titled(metric)} and a cost`, data.points.filter((one) => costsAt(one).time.size).slice(0, 8).map((one) => [one.title, { at: one.key }]));
  const as = COSTS[kind];
  const best = new Set(rows.filter((row) => !rows.some((other) => other !== row && sign(metric) * other.mean >= sign(metric) * row.mean && other.cost.value <= row.cost.value && (other.mean !== row.mean || other.cost.value !== row.cost.value))));
  const height = Math.max(380, 17 * rows.length + 90);
  const [top, bottom] = [10, height - 48];
  const ys = padded(range(rows.map((row) => [row.low ?? row.mean, row.mean, row.high ?? row.mean])));
  const xs = padded(range(rows.map(({ cost }) => [cost.low ?? cost.value, cost.value, cost.high ?? cost.value])), 0.1);
  if (metric.score) [ys[0], ys[1]] = [Math.max(0, ys[0]), Math.min(100.5, ys[1])];
  const found = ticks(ys[0], ys[1], 5);
  const left = most(found.map(([, written]) => widthOf(written, 11))) + 16;
  const right = width - 8;
  const y = scale(ys[0], ys[1], bottom, top);
  const x = scale(xs[0], xs[1], left + 8, right - 8);
  const [unit, per] = kind === "time" ? ["×", 1] : unitFor(xs[1]);
  const across = ticks(xs[0] / per, xs[1] / per, Math.max(2, Math.floor((right - left) / 110))).map(([value, written]) => [value * per, `${written}${per > 1 ? " " : ""}${unit}`]);
  const clip = (value, axis) => Math.max(axis.low, Math.min(axis.high, value));
  const front = [...best].sort((a, b) => a.cost.value - b.cost.value);
  const stairs = front.map((row, index) => `${index ? `H${x(clip(row.cost.value, x)).toFixed(1)}V` : `M${x(clip(row.cost.value, x)).toFixed(1)} `}${y(clip(row.mean, y)).toFixed(1)}`).join("");
  // Losses of equal cost stand side by side, the best in the middle of its place.
  const beside = new Map();
  const shifts = new Map([...rows].sort((a, b) => sign(metric) * (b.mean - a.mean)).map((row) => {
    const place = Math.round(x(clip(row.cost.value, x)) / 3);
    const count = beside.get(place) ?? 0;
    beside.set(place, count + 1);
    return [row, 8 * Math.ceil(count / 2) * (count % 2 ? 1 : -1)];
  }));
  const spots = rows.map((row) => {
    const px = Math.max(left + 6, Math.min(right - 6, x(clip(row.cost.value, x)) + shifts.get(row)));
    const py = y(clip(row.mean, y));
    const beyond = (!x.inside(row.cost.value) ? ` → ${as.write(row.cost.value)}` : "") + (!y.inside(row.mean) ? ` ${row.mean < y.low ? "↓" : "↑"} ${fixed(row.mean, metric.digits)}` : "");
    const name = fitting(data.labels[row.loss], (width < 480 ? 130 : 280) - widthOf(beyond, 11.5), 11.5);
    const bars = [known(row.low) ? [px, y(clip(row.high, y)), px, y(clip(row.low, y))] : null, known(row.cost.low) ? [x(clip(row.cost.low, x)), py, x(clip(row.cost.high, x)), py] : null].filter(Boolean);
    return { row, px, py, name, beyond, bars, room: widthOf(name + beyond, 11.5) };
  });
  const steps = front.flatMap((row, index) => {
    if (!index) return [];
    const [before, here] = [front[index - 1], row].map((one) => [x(clip(one.cost.value, x)), y(clip(one.mean, y))]);
    return [[before[0], before[1], here[0], before[1]], [here[0], Math.min(before[1], here[1]), here[0], Math.max(before[1], here[1])]];
  });
  const places = labelled(spots, [...spots.flatMap((spot) => spot.bars), ...steps], { left, right, top, bottom });
  const drawn = spots.map(({ row, px, py, name, beyond, bars }, index) => {
    const [lx, ly, ex, ey] = places[index];
    const parts = [draw("circle", { cx: px, cy: py, r: 11, class: "hit" })];
    if (Math.hypot(ex - px, ey - py) > 14) parts.push(line(px, py, ex, ey, "leader"));
    parts.push(...bars.map((bar) => line(...bar, "interval thin")));
    parts.push(shape(data.losses[row.loss].marker, px, py, 5.5, { class: best.has(row) ? "solid" : "hollow" }));
    parts.push(draw("text", { x: lx.toFixed(1), y: (ly + 10).toFixed(1), class: "name halo" }, name, draw("tspan", { class: "soft" }, beyond)));
    const more = [[as.name, `${as.write(row.cost.value)}${known(row.cost.low) ? ` ${spanned(row.cost.low, row.cost.high, as.write)}` : ""}`]];
    if (known(row.cost.chance)) more.push(["P(on the front)", row.cost.chance.toFixed(2)]);
    const about = aboutMean(row, metric, point, more);
    const delta = data.differences.find((one) => one.point === point.index && one.metric === row.metric && one.loss === row.loss);
    return mark(tinted(draw("g", {}, ...parts), row.loss), { ...about, verdict: delta?.verdict, groups: data.behind(point.index, ...new Set([row.loss, 0])) });
  });
  const svg = drawing(width, height, `${titled(metric)} against ${as.name}`,
    leftAxis(y, left, found, right - left), bottomAxis(x, bottom, across, bottom - top, as.label()),
    draw("path", { class: "front", d: stairs }), drawn);
  const top1 = [...rows].sort((a, b) => sign(metric) * (b.mean - a.mean) || a.cost.value - b.cost.value)[0];
  const cheap = [...rows].sort((a, b) => a.cost.value - b.cost.value || sign(metric) * (b.mean - a.mean))[0];
  const price = (row) => (kind === "time" ? (row.loss === 0 ? "" : ` at ${as.write(row.cost.value)} the step time of ${baseName()}`) : ` with ${as.write(row.cost.value)}`);
  return {
    title: top1 === cheap ? `${data.labels[top1.loss]} has the best ${titled(metric)} on ${point.title} and ${as.least}` : `${data.labels[top1.loss]} has the best ${titled(metric)} on ${point.title} (${valued(metric, top1.mean)})${price(top1)}; ${data.labels[cheap.loss]} has ${as.least} (${valued(metric, cheap.mean)})`,
    subtitle: `${capital(titled(metric))}${metric.score ? " in percent" : metric.unit ? ` in ${metric.unit}` : ""} against ${as.name}. Better is ${metric.up ? "up" : "down"} and to the left. Bars are 95 % intervals, ${seedsOf(rows)}. Filled: on the Pareto front of the means (dashed).`,
    nodes: [svg],
    note: "A label with an arrow belongs to a mark beyond the axis; losses of equal cost stand side by side. Which mean is best is not a test: see the verdicts.",
  };
}

// --- 4. all pairs

function allPairs(width) {
  const point = chosen.point();
  const metric = data.metrics[0];
  const rows = data.at("pairs", point.index).filter((row) => isShown(row.a, wordsOf(point)) && isShown(row.b, wordsOf(point)));
  if (!rows.length) {
    const others = [...new Set(data.pairs.map((row) => row.point))].slice(0, 8).map((index) => [data.points[index].title, { at: data.points[index].key }]);
    const several = new Set(data.at("differences", point.index).map((row) => row.loss)).size > 1;
    const leftOut = several && !data.at("pairs", point.index).length;
    return nothing(leftOut ? `This page has the pairs of one point per dataset and backbone, not those of ${point.title}` : `No pairs to compare at ${point.title}`, others);
  }
  const back = { better: "worse", worse: "better" };
  const pair = new Map();
  for (const row of rows) {
    pair.set(`${row.a} ${row.b}`, row);
    pair.set(`${row.b} ${row.a}`, { ...row, a: row.b, b: row.a, delta: -row.delta, low: known(row.high) ? -row.high : null, high: known(row.low) ? -row.low : null, verdict: back[row.verdict] ?? row.verdict });
  }
  const losses = [...new Set(rows.flatMap((row) => [row.a, row.b]))];
  const standing = (a) => losses.reduce((sum, b) => sum + sign(metric) * (pair.get(`${a} ${b}`)?.delta ?? 0), 0);
  losses.sort((a, b) => standing(b) - standing(a));
  const count = losses.length;
  const named = (loss) => `${data.labels[loss]}${loss === 0 && width >= 480 ? " (baseline)" : ""}`;
  const labelRoom = Math.min(most(losses.map((loss) => widthOf(named(loss)))) + 54, width < 480 ? 128 : 0.4 * width);
  const cell = Math.max(15, Math.min(74, Math.floor((width - labelRoom) / count)));
  const height = Math.max(20, Math.min(30, cell));
  const written = cell >= 46;
  const top = 22;
  const limit = Math.max(data.margin, median(rows.map((row) => Math.abs(row.delta))) * 3);
  const head = losses.map((_, index) => text(labelRoom + (index + 0.5) * cell, top - 7, String(index + 1), "tick", "middle"));
  const drawn = losses.flatMap((a, i) => losses.map((b, j) => {
    const row = pair.get(`${a} ${b}`);
    const [x, y] = [labelRoom + j * cell, top + i * height];
    if (!row) return draw("rect", { x: x + 1, y: y + 1, width: cell - 2, height: height - 2, class: "blank" });
    const strength = Math.round(55 * Math.min(1, Math.abs(row.delta) / limit));
    const good = sign(metric) * row.delta > 0;
    const box = draw("rect", { x: x + 1, y: y + 1, width: cell - 2, height: height - 2, rx: 2, class: "tile" });
    box.style.fill = `color-mix(in oklab, var(--${good ? "good" : "bad"}) ${strength}%, var(--panel))`;
    const word = written ? `${VERDICT[row.verdict].sign} ${signed(row.delta, metric.digits === 2 ? 2 : metric.digits)}` : VERDICT[row.verdict].sign;
    const inside = text(x + cell / 2, y + height / 2 + 4, word, "tile-text", "middle");
    return mark(draw("g", {}, box, inside), {
      title: `${data.labels[a]} − ${data.labels[b]}`,
      verdict: row.verdict,
      rows: [["difference", changed(metric, row.delta)], ["interval", spanned(row.low, row.high, (value) => signed(value, metric.digits))], ["paired seeds", String(row.n)], ...where(point)],
      groups: data.behind(point.index, a, b),
    });
  }));
  const names = losses.map((loss, index) => {
    const y = top + index * height + height / 2 + 4;
    return draw("g", {}, text(22, y, String(index + 1), "tick", "end"), tinted(shape(data.losses[loss].marker, 33, y - 4, 4, { class: "solid" }), loss),
      text(43, y, fitting(named(loss), labelRoom - 50), "name"));
  });
  const svg = drawing(labelRoom + count * cell + 2, top + count * height + 4, "All pairs of losses", head, names, drawn);
  svg.dataset.columns = count - 1;
  const wins = losses.map((a) => losses.filter((b) => pair.get(`${a} ${b}`)?.verdict === "better").length);
  const [lead, last] = [wins.indexOf(most(wins)), losses.map((a) => losses.filter((b) => pair.get(`${a} ${b}`)?.verdict === "worse").length)];
  const worst = last.indexOf(most(last));
  const others = count - 1;
  return {
    title: most(wins) === 0 ? `No loss is better than another on ${point.title}` : `${data.labels[losses[lead]]} is better than ${wins[lead]} of ${others} other losses on ${point.title}; ${data.labels[losses[worst]]} is worse than ${last[worst]}`,
    subtitle: `Row minus column in ${titled(metric)}${metric.unit ? `, in ${metric.unit}` : ""}; columns have the numbers of the rows, best mean first. Paired by seed, ${seedsOf(rows)}. Colour: mean difference, full at ${limit.toFixed(metric.digits)}${unitOf(metric)}.`,
    nodes: [make("div", { className: "wide" }, svg)],
    legend: ["better", "equivalent", "undecided", "worse", "not testable"].filter((word) => rows.some((row) => row.verdict === word || back[row.verdict] === word)),
  };
}

// --- 5. learning curves

function learningCurves(width) {
  const point = chosen.point();
  const rows = data.at("curves", point.index).filter((row) => isShown(row.loss, wordsOf(point)));
  if (!rows.length) return nothing(`No learning curves at ${point.title}`);
  const kinds = ["loss", "accuracy"].filter((name) => rows.some((row) => row.series === name));
  const columns = kinds.length > 1 && width >= 760 ? 2 : 1;
  const each = Math.floor((width - 28 * (columns - 1)) / columns);
  const nodes = kinds.map((name) => curvePanel(name, rows.filter((row) => row.series === name), each, point));
  const grid = make("div", { className: "panels" }, ...nodes);
  grid.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
  const scored = rows.filter((row) => row.series === "accuracy");
  const end = (row) => row.means.at(-1);
  const top1 = scored.length ? scored.reduce((a, b) => (end(b) > end(a) ? b : a)) : null;
  const first = rows.find((row) => row.series === "loss") ?? rows[0];
  return {
    title: top1 ? `At step ${top1.steps.at(-1)}, ${data.labels[top1.loss]} has the highest test accuracy on ${point.title}: ${end(top1).toFixed(1)} %` : `The training loss of ${data.labels[first.loss]} goes from ${Number(first.means[0].toPrecision(2))} to ${Number(end(first).toPrecision(2))} by step ${first.steps.at(-1)} on ${point.title}`,
    subtitle: `Means over seeds with 95 % intervals, ${seedsOf(rows)}. Training losses of different losses are different quantities: compare their shapes, not their heights.`,
    nodes: [grid],
  };
}

function curvePanel(name, rows, width, point) {
  const all = rows.flatMap((row) => row.means).filter(known);
  const low0 = least(all);
  const log = name === "loss" && low0 > 0 && most(all) / low0 > 30;
  const bounds = rows.flatMap((row) => row.means.map((mean, index) => [row.lows[index] ?? mean, mean, row.highs[index] ?? mean])).filter(([, mean]) => known(mean));
  let [low, high] = log ? [low0 * 0.9, most(all) * 1.1] : padded(range(bounds), 0.04);
  if (name === "accuracy") [low, high] = [Math.max(0, low), Math.min(100.5, high)];
  else if (!log) low = Math.max(low, Math.min(0, low0));
  const found = log ? logTicks(low, high, 6) : ticks(low, high, 5);
  const labelRoom = Math.min(most(rows.map((row) => widthOf(data.labels[row.loss], 11))) + 16, width < 430 ? 92 : 160);
  const height = Math.max(280, 15 * rows.length + 60);
  const [top, bottom, left, right] = [8, height - 42, most(found.map(([, written]) => widthOf(written, 11))) + 14, width - labelRoom];
  const y = scale(low, high, bottom, top, log);
  const steps = rows.flatMap((row) => row.steps);
  const x = scale(least(steps), most(steps), left + 4, right - 6);
  const clip = (value) => Math.max(low, Math.min(high, value));
  const layers = rows.map((row) => {
    const places = row.steps.map((step, index) => [x(step), row.means[index], row.lows[index], row.highs[index], index]).filter(([, mean]) => known(mean));
    const path = (list) => `M${list.map(([px, py]) => `${px.toFixed(1)} ${y(clip(py)).toFixed(1)}`).join("L")}`;
    const sides = places.filter(([, , a, b]) => known(a) && known(b));
    const band = sides.length > 1 ? draw("path", { class: "spread", d: `${path(sides.map(([px, , a]) => [px, a]))}${path(sides.map(([px, , , b]) => [px, b]).reverse()).replace("M", "L")}Z` }) : null;
    const look = data.losses[row.loss];
    const stroke = draw("path", { class: "line", d: path(places), "stroke-dasharray": look.dash.length ? look.dash.map((part) => 2 * part).join(" ") : null });
    const marks = places.map(([px, mean, a, b, index]) => mark(draw("circle", { cx: px.toFixed(1), cy: y(clip(mean)).toFixed(1), r: 6, class: "hit dot" }), {
      title: data.labels[row.loss],
      rows: [[name === "loss" ? "training loss" : "test accuracy", name === "loss" ? String(mean) : `${mean.toFixed(2)} %`], ["step", String(row.steps[index])], ["interval", spanned(a, b, String)], ["seeds", String(row.n)], ...where(point)],
      groups: data.behind(point.index, row.loss),
    }));
    const [lastX, lastMean] = places.at(-1);
    return { loss: row.loss, last: [lastX, y(clip(lastMean))], node: tinted(draw("g", { class: "series" }, band, stroke, ...marks), row.loss) };
  });
  const places = dodged(layers.map((layer) => layer.last[1]), 14, top + 6, bottom);
  const names = layers.map((layer, index) => tinted(draw("g", { class: "end" }, line(layer.last[0] + 3, layer.last[1], right + 2, places[index], "leader"),
    text(right + 5, places[index] + 4, fitting(data.labels[layer.loss], labelRoom - 8, 11), "small")), layer.loss));
  const title = name === "loss" ? `Training loss${log ? " (log scale)" : ""}` : "Test accuracy, %";
  const svg = drawing(width, height, title, leftAxis(y, left, found, right - left), bottomAxis(x, bottom, ticks(x.low, x.high, Math.max(2, Math.floor((right - left) / 80))), 0, "step"), names, layers.map((layer) => layer.node));
  return make("div", { className: "panel" }, make("h4", {}, title), svg);
}

// --- 6. bars from zero: memory by cause, phases of a step; and angles by class

// `unit` gives what the axis counts in, and its size: ticks are round numbers of it.
function stacked(rows, parts, total, unit, width, about, name) {
  const labelRoom = Math.min(most(rows.map((row) => widthOf(data.labels[row.loss]))) + 26, width < 480 ? 126 : 300);
  const ends = rows.map((row) => parts.reduce((sum, [key]) => sum + (row[key] ?? 0), 0));
  const valueRoom = most(rows.map((row) => widthOf(total(row)))) + 10;
  const bottom = rows.length * ROW + 4;
  const x = scale(0, most(ends) || 1, labelRoom, width - valueRoom);
  const [counts, per] = unit(most(ends));
  const found = ticks(0, (most(ends) || 1) / per, Math.max(2, Math.floor((width - labelRoom - valueRoom) / 110))).map(([value, written]) => [value * per, `${written} ${counts}`]);
  const drawn = rows.map((row, index) => {
    const y = 4 + index * ROW;
    let start = 0;
    const bars = parts.map(([key, label], part) => {
      const size = row[key] ?? 0;
      const bar = draw("rect", { x: x(start).toFixed(1), y: y + 3, width: Math.max(0, x(start + size) - x(start)).toFixed(1), height: ROW - 7, class: `part p${part}` });
      start += size;
      return size > 0 ? mark(bar, about(row, label, size)) : null;
    });
    return draw("g", { "data-l": row.loss },
      tinted(shape(data.losses[row.loss].marker, 8, y + ROW / 2, 4, { class: "solid" }), row.loss),
      text(18, y + ROW / 2 + 4, fitting(data.labels[row.loss], labelRoom - 24), "name"), ...bars,
      text(x(start) + 6, y + ROW / 2 + 4, total(row), "value"));
  });
  const svg = drawing(width, bottom + 24, name, bottomAxis(x, bottom, found, bottom), drawn);
  const key = make("div", { className: "keys" }, ...parts.map(([, label], part) => make("span", {}, make("i", { className: `p${part}` }), label)));
  return [key, svg];
}

function memoryByCause(width) {
  const point = chosen.point();
  const rows = data.at("memory", point.index).filter((row) => isShown(row.loss, wordsOf(point))).map((row) => ({ ...row, body: Math.max(0, (row.model ?? 0) - (row.fc ?? 0)) }));
  if (!rows.length) return nothing(`No memory was recorded at ${point.title}`);
  const parts = [["body", "backbone without FC layer"], ["fc", "FC layer"], ["classifier", "class weights"], ["state", "loss state"], ["optimizer", "optimizer state"]];
  const sum = (row) => parts.reduce((total, [key]) => total + (row[key] ?? 0), 0);
  rows.sort((a, b) => sum(b) - sum(a) || a.loss - b.loss);
  const base = rows.find((row) => row.loss === 0);
  const top1 = rows[0];
  const same = rows.every((row) => sum(row) === sum(top1));
  return {
    title: same ? `All losses need the same memory on ${point.title}: ${sized(sum(top1))}` : `${data.labels[top1.loss]} needs the most memory on ${point.title}: ${sized(sum(top1))}${base && base !== top1 ? `, ${(sum(top1) / sum(base)).toFixed(2)} times that of ${baseName()}` : ""}`,
    subtitle: "Bytes of parameters and their state by cause; they do not depend on the seed. The hover has the peak of training, activations and allocator included.",
    nodes: stacked(rows, parts, (row) => sized(sum(row)), unitFor, width, (row, label, size) => ({
      title: data.labels[row.loss],
      rows: [[label, sized(size)], ["in all", sized(sum(row))], ["peak of training", known(row.peak) ? sized(row.peak) : "–"], ...where(point)],
      groups: data.behind(point.index, row.loss),
    }), "Memory by cause"),
  };
}

function phasesOfStep(width) {
  const point = chosen.point();
  const rows = data.at("phases", point.index).filter((row) => known(row.forward) && isShown(row.loss, wordsOf(point))).sort((a, b) => b.step - a.step);
  if (!rows.length) return nothing(`No step was timed at ${point.title}`, [...new Set(data.phases.map((row) => row.point))].map((index) => [data.points[index].title, { at: data.points[index].key }]));
  const base = rows.find((row) => row.loss === 0);
  const top1 = rows[0];
  return {
    title: `${data.labels[top1.loss]} has the slowest step on ${point.title}: ${top1.step.toFixed(2)} ms${base && base !== top1 ? `, ${(top1.step / base.step).toFixed(2)} times the median of ${baseName()}` : ""}`,
    subtitle: `Median milliseconds per step by phase over ${counted(top1.rounds, "round")}, alone on the machine. The medians of phases need not add up to that of the step. To compare losses use the paired ratios.`,
    nodes: stacked(rows, [["forward", "forward"], ["backward", "backward"], ["optimizer", "optimizer"]], (row) => `${row.step.toFixed(2)} ms`, () => ["ms", 1], width, (row, label, size) => ({
      title: data.labels[row.loss],
      rows: [[label, `${size.toFixed(3)} ms`], ["whole step", `${row.step.toFixed(3)} ms`], ["rounds", String(row.rounds)], ...where(point)],
      groups: known(data.timing.get(point.index)) ? [data.timing.get(point.index)] : [],
    }), "Phases of a step"),
  };
}

function anglesByClass(width) {
  const point = chosen.point();
  const rows = data.at("angles", point.index).filter((row) => isShown(row.loss, wordsOf(point)));
  if (!rows.length) return nothing(`No angles by class at ${point.title}`);
  const middle = (row) => median(row.values);
  const of = (loss, split) => rows.find((row) => row.loss === loss && row.split === split);
  const losses = [...new Set(rows.map((row) => row.loss))].sort((a, b) => middle(of(a, "test") ?? of(a, "train")) - middle(of(b, "test") ?? of(b, "train")));
  const labelRoom = Math.min(most(losses.map((loss) => widthOf(data.labels[loss]))) + 26, width < 480 ? 126 : 300);
  const [low, high] = padded([least(rows.flatMap((row) => row.values)), most(rows.flatMap((row) => row.values))], 0.03);
  const x = scale(low, high, labelRoom, width - 12);
  const tall = 34;
  const bottom = losses.length * tall + 4;
  const quartiles = rows[0].classes > rows[0].values.length;
  const drawn = losses.map((loss, index) => {
    const y = 4 + index * tall;
    const parts = ["train", "test"].flatMap((split, lane) => {
      const row = of(loss, split);
      if (!row) return [];
      const py = y + 10 + lane * 14;
      const about = (what, value) => ({ title: data.labels[loss], rows: [[what, `${value}°`], ["split", split], ["seeds", String(row.n)], ["classes", String(row.classes)], ...where(point)], groups: data.behind(point.index, loss) });
      const lines = quartiles ? [line(x(row.values[0]), py, x(row.values[4]), py, "interval thin"), line(x(row.values[1]), py, x(row.values[3]), py, "interval thick")] : [];
      const names = ["minimum", "lower quartile", "median", "upper quartile", "maximum"];
      return [...lines, ...row.values.map((value, place) => mark(shape("o", x(value), py, 4, { class: split === "test" ? "solid soft" : "hollow" }), about(quartiles ? `${names[place]} over classes` : `class ${place}`, value)))];
    });
    return tinted(draw("g", {}, text(18, y + tall / 2 + 4, fitting(data.labels[loss], labelRoom - 24), "name"), shape(data.losses[loss].marker, 8, y + tall / 2, 4, { class: "solid" }), ...parts), loss);
  });
  const [near, base] = [of(losses[0], "test") ?? of(losses[0], "train"), of(0, "test") ?? of(0, "train")];
  return {
    title: `${data.labels[losses[0]]} draws features closest to their class weights on ${point.title}: median angle ${middle(near).toFixed(0)}°${base && losses[0] !== 0 ? `, ${baseName()} ${middle(base).toFixed(0)}°` : ""}`,
    subtitle: `Mean angle in degrees between the features of a class and its weight, ${quartiles ? "quartiles over classes" : "one dot per class"}; above: training images (hollow), below: test images (filled).`,
    nodes: [drawing(width, bottom + 24, "Angles by class", bottomAxis(x, bottom, ticks(low, high, Math.max(2, Math.floor((width - labelRoom) / 80))), bottom), drawn)],
  };
}

// --- 7. claims: one row per statement, one mark per case

function claimsByCase() {
  const order = ["supported", "contradicted", "undecided", "not testable", "not run"];
  const rows = data.statements.map(({ text: said, cases }) => ({
    said, cases: cases.filter((one) => !state.q || fits(`${said} ${one.text} ${one.where} ${one.verdict}`.toLowerCase(), state.q)),
  })).filter((row) => row.cases.length);
  if (!rows.length) return nothing("No claim matches the filter");
  const all = rows.flatMap((row) => row.cases);
  const count = Object.fromEntries(order.map((word) => [word, all.filter((one) => one.verdict === word).length]));
  const nodes = rows.map(({ said, cases }) => {
    const marks = [...cases].sort((a, b) => order.indexOf(a.verdict) - order.indexOf(b.verdict)).map((one) => {
      const { sign: glyph, tone } = VERDICT[one.verdict];
      const rowsOf = [["difference", one.difference], ["n", String(one.n)], ["evidence", one.evidence], ["tested as", one.tested], ["experiment", one.where]];
      return mark(make("button", { type: "button", className: `case ${tone}` }, glyph), { title: one.text, verdict: one.verdict, rows: one.verdict === "not run" ? rowsOf.slice(3) : rowsOf, groups: one.groups });
    });
    marks[0].setAttribute("tabindex", "0");
    const counts = order.filter((word) => cases.some((one) => one.verdict === word)).map((word) => `${cases.filter((one) => one.verdict === word).length} ${word}`);
    return make("li", {}, make("p", {}, said), make("div", { className: "marks" }, ...marks), make("p", { className: "counts" }, counts.join(", ")));
  });
  const tested = all.length - count["not run"] - count["not testable"];
  return {
    title: tested ? `${count.supported} of ${counted(tested, "testable case")} ${count.supported === 1 ? "supports" : "support"} what the suite claims; ${count.contradicted} contradict it` : "No claim could be tested",
    subtitle: "One row per statement, one mark per case: an experiment, loss or value of an option.",
    nodes: [make("ol", { className: "claims" }, ...nodes)],
    legend: order.filter((word) => count[word]),
  };
}

// --- nothing to draw, and where there is something
function nothing(title, elsewhere = []) {
  const buttons = elsewhere.map(([name, changes]) => {
    const button = make("button", { type: "button", className: "quiet" }, name);
    button.addEventListener("click", () => choose(changes));
    return button;
  });
  return { title, subtitle: elsewhere.length ? "There is at:" : state.q || state.off.length ? "The filter may hide it." : "", nodes: buttons.length ? [make("div", { className: "elsewhere" }, ...buttons)] : [], empty: true };
}

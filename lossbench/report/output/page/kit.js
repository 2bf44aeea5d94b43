// --- Nodes, numbers, scales and marks: what every chart and table is made of. Text enters the page only through
// textContent (`make` and `draw` append strings), so nothing in a suite, a loss or a log can become markup.

const make = (tag, properties = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
};

let space = null; // of SVG: taken from the page, so that no address is written here
const draw = (tag, attributes = {}, ...children) => {
  space ??= document.getElementById("drawing").content.firstElementChild.namespaceURI;
  const node = document.createElementNS(space, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
};

const byId = (id) => document.getElementById(id);
const most = (values, otherwise = 0) => values.reduce((a, b) => Math.max(a, b), values.length ? -Infinity : otherwise);
const least = (values, otherwise = 0) => values.reduce((a, b) => Math.min(a, b), values.length ? Infinity : otherwise);
const known = (value) => value !== null && value !== undefined;
const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const counted = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;
const listed = (names) => (names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`);

// --- numbers as text, with a minus as wide as the plus
const fixed = (value, digits) => (known(value) ? value.toFixed(digits).replace("-", "−") : "–");
const signed = (value, digits) => (known(value) ? (value < 0 ? "−" : "+") + Math.abs(value).toFixed(digits) : "–");
const spanned = (low, high, write) => (known(low) && known(high) ? `[${write(low)}, ${write(high)}]` : "–");
const UNITS = [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];
const unitFor = (bytes) => UNITS.find(([, size]) => Math.abs(bytes) >= size) ?? ["B", 1];
const sized = (bytes) => {
  const [unit, factor] = unitFor(bytes);
  return factor === 1 ? `${Math.round(bytes)} B` : `${(bytes / factor).toFixed(1)} ${unit}`;
};

// --- text that must fit
const canvas = document.createElement("canvas").getContext("2d");
const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif';
const widths = new Map();
const widthOf = (text, size = 12) => {
  const key = `${size} ${text}`;
  if (!widths.has(key)) {
    canvas.font = `${size}px ${FONT}`;
    widths.set(key, canvas.measureText(text).width);
  }
  return widths.get(key);
};
// A label that is too long loses the names of its options, which the legend has: `w_softmax[1.0,exact]`; then its middle.
const fitting = (label, room, size = 12) => {
  const brief = label.replace(/([[,])\w+=/g, "$1");
  for (const candidate of [label, brief]) if (widthOf(candidate, size) <= room) return candidate;
  for (let kept = brief.length - 1; kept > 2; kept -= 1) {
    const head = Math.ceil(kept * 0.45);
    const short = `${brief.slice(0, head)}…${brief.slice(head - kept)}`;
    if (widthOf(short, size) <= room) return short;
  }
  return `${label.slice(0, 1)}…`;
};

// --- scales
function scale(low, high, from, to, log = false) {
  const f = log ? Math.log : (value) => value;
  const span = f(high) - f(low) || 1;
  const place = (value) => from + ((f(value) - f(low)) / span) * (to - from);
  return Object.assign(place, { low, high, from, to, log, inside: (value) => value >= low && value <= high });
}

function ticks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.7) ?? rough;
  const digits = Math.max(0, Math.min(8, -Math.floor(Math.log10(step) + 1e-9) + (step / power === 2.5 ? 1 : 0)));
  const found = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high + step * 1e-9; index += 1) found.push(index * step);
  return found.map((value) => [value, fixed(Math.abs(value) < step / 1e6 ? 0 : value, digits)]);
}

function logTicks(low, high, count) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const factor of [1, 2, 5]) found.push(factor * 10 ** power);
  }
  const inside = found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
  const thin = inside.length > count ? inside.filter((value) => /^1(0|e|$)|^0\.0*1$/.test(String(value))) : inside;
  return (thin.length > 1 ? thin : inside).map((value) => [value, String(Number(value.toPrecision(3)))]);
}

// The range of some intervals [low, value, high] without those so far off that they would squeeze the others; these are
// drawn at the edge with an arrow. Nothing is cut unless that at least halves the range.
function range(intervals, include = []) {
  const whole = (list) => [least([...list.flatMap(([low]) => low), ...include]), most([...list.flatMap((row) => row[2]), ...include])];
  if (!intervals.length) return include.length ? [least(include), most(include)] : [0, 1];
  const middle = median(intervals.map((row) => row[1]));
  const reach = (row) => Math.max(middle - row[0], row[2] - middle);
  const usual = Math.max(median(intervals.map(reach)), most(include.map((value) => Math.abs(value - middle))) / 4, 1e-9);
  const near = intervals.filter((row) => reach(row) <= 5 * usual);
  const [all, some] = [whole(intervals), whole(near.length ? near : intervals)];
  return all[1] - all[0] > 2 * (some[1] - some[0]) ? some : all;
}
const padded = ([low, high], share = 0.06) => {
  const more = (high - low || Math.abs(high) || 1) * share;
  return [low - more, high + more];
};

// Places at least `gap` apart, as near to the wanted ones as a sweep down and one up can make them.
function dodged(wanted, gap, top, bottom) {
  const order = wanted.map((place, index) => [place, index]).sort((a, b) => a[0] - b[0]);
  const found = [];
  let last = top - gap;
  for (const [place, index] of order) { last = Math.max(place, last + gap); found.push([last, index]); }
  let limit = bottom + gap;
  for (const entry of found.reverse()) { limit = Math.min(entry[0], limit - gap); entry[0] = limit; }
  const places = new Array(wanted.length);
  for (const [place, index] of found) places[index] = place;
  return places;
}

// Where the labels of marks go: each takes the place around its mark, the near ones first, that covers least of other
// labels, marks and bars. Gives x and y of the upper left corner, and the end of a leader line.
function labelled(spots, lines, { left, right, top, bottom }) {
  const taken = [];
  const boxes = spots.map(({ px, py }) => [px - 7, py - 7, px + 7, py + 7]);
  const meets = (a, b) => a[0] < b[2] && a[2] > b[0] && a[1] < b[3] && a[3] > b[1];
  const order = spots.map((_, index) => index).sort((a, b) => spots[a].py - spots[b].py);
  const found = new Array(spots.length);
  for (const index of order) {
    const { px, py, room } = spots[index];
    let best = null;
    for (let away = 9; away <= 140; away += 9) {
      for (let turn = 0; turn < 360; turn += 30) {
        const [ex, ey] = [px + away * Math.cos((turn * Math.PI) / 180), py + away * Math.sin((turn * Math.PI) / 180)];
        const x0 = turn > 90 && turn < 270 ? ex - room : turn % 180 === 90 ? ex - room / 2 : ex;
        const box = [x0 - 2, ey - 8, x0 + room + 2, ey + 7];
        if (box[0] < left || box[2] > right || box[1] < top || box[3] > bottom) continue;
        const own = Math.hypot(ex - px, ey - py);
        const stray = spots.some((other, at) => at !== index && Math.hypot(ex - other.px, ey - other.py) < own);
        const cost = away + 70 * stray + 300 * taken.filter((other) => meets(box, other)).length
          + 120 * boxes.filter((other) => meets(box, other)).length
          + 25 * lines.filter((bar) => meets(box, [bar[0] - 1, bar[1] - 1, bar[2] + 1, bar[3] + 1])).length;
        if (!best || cost < best.cost) best = { cost, box, place: [x0, ey - 6, ex, ey] };
      }
    }
    best ??= { box: [px, py, px, py], place: [Math.min(px + 9, right - room), py - 6, px, py] };
    taken.push(best.box);
    found[index] = best.place;
  }
  return found;
}

// --- shapes, as matplotlib names them, within a circle of radius r around 0, 0
const polygon = (count, r, turn = -90) => Array.from({ length: count }, (_, index) => {
  const angle = ((turn + (360 * index) / count) * Math.PI) / 180;
  return `${(r * Math.cos(angle)).toFixed(2)} ${(r * Math.sin(angle)).toFixed(2)}`;
}).join("L");
const cross = (r, turn) => {
  const corners = [[-1, -3], [1, -3], [1, -1], [3, -1], [3, 1], [1, 1], [1, 3], [-1, 3], [-1, 1], [-3, 1], [-3, -1], [-1, -1]];
  const [c, s] = [Math.cos(turn), Math.sin(turn)].map((part) => (part * r) / 3);
  return corners.map(([x, y]) => `${(x * c - y * s).toFixed(2)} ${(x * s + y * c).toFixed(2)}`).join("L");
};
const SHAPES = {
  o: (r) => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`,
  s: (r) => `M${polygon(4, r * 1.2, 45)}Z`,
  D: (r) => `M${polygon(4, r * 1.25)}Z`,
  "^": (r) => `M${polygon(3, r * 1.3)}Z`,
  v: (r) => `M${polygon(3, r * 1.3, 90)}Z`,
  P: (r) => `M${cross(r * 1.15, 0)}Z`,
  X: (r) => `M${cross(r * 1.15, Math.PI / 4)}Z`,
  "<": (r) => `M${polygon(3, r * 1.3, 180)}Z`,
  ">": (r) => `M${polygon(3, r * 1.3, 0)}Z`,
  "*": (r) => `M${Array.from({ length: 10 }, (_, index) => { const [a, q] = [(index * 36 - 90) * Math.PI / 180, index % 2 ? 0.5 * r : 1.35 * r]; return `${(q * Math.cos(a)).toFixed(2)},${(q * Math.sin(a)).toFixed(2)}`; }).join("L")}Z`,
  p: (r) => `M${polygon(5, r * 1.15)}Z`,
  h: (r) => `M${polygon(6, r * 1.15)}Z`,
  d: (r) => `M0 ${-1.4 * r}L${0.85 * r} 0L0 ${1.4 * r}L${-0.85 * r} 0Z`,
};
const shape = (name, x, y, r, attributes = {}) =>
  draw("path", { d: SHAPES[name](r), transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, ...attributes });

// The verdict is a shape and a word; its colour is only an addition.
const VERDICT = {
  better: { shape: "^", tone: "good", sign: "▲" },
  worse: { shape: "v", tone: "bad", sign: "▼" },
  equivalent: { shape: "s", tone: "even", sign: "■" },
  undecided: { shape: "o", tone: "open", sign: "○", hollow: true },
  "not testable": { shape: "X", tone: "plain", sign: "×" },
  supported: { tone: "good", sign: "✓" },
  contradicted: { tone: "bad", sign: "✗" },
  "not run": { tone: "plain", sign: "–" },
};
const verdictMark = (word, x, y, r = 5.2) => {
  const { shape: name, hollow } = VERDICT[word];
  return shape(name, x, y, r, { class: hollow ? "hollow" : "solid" });
};

// --- texts, axes and frames of a drawing
const text = (x, y, content, className = "", anchor = null) =>
  draw("text", { x: x.toFixed(1), y: y.toFixed(1), class: className || null, "text-anchor": anchor }, content);
const line = (x1, y1, x2, y2, className) =>
  draw("line", { x1: x1.toFixed(1), y1: y1.toFixed(1), x2: x2.toFixed(1), y2: y2.toFixed(1), class: className });
const tinted = (node, loss) => {
  node.style.color = `var(--l${loss})`;
  node.dataset.l = loss;
  return node;
};
const arrow = (x, y, towards) => draw("path", { class: "solid", d: `M${x.toFixed(1)} ${y.toFixed(1)}l${-7 * towards} -4.5v9Z` });

function drawing(width, height, name, ...children) {
  const svg = draw("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": name });
  svg.append(...children.flat().filter(Boolean));
  const first = svg.querySelector(".mark");
  if (first) first.setAttribute("tabindex", "0"); // one stop for the keyboard; arrows move between marks
  return svg;
}

function bottomAxis(x, y, found, height, label = "") {
  const middle = (x.from + x.to) / 2;
  return [
    ...found.map(([value]) => line(x(value), y, x(value), y - height, "grid")),
    ...found.map(([value, written]) => text(x(value), y + 16, written, "tick", "middle")),
    label ? text(middle, y + 33, label, "tick label", "middle") : null,
  ].filter(Boolean);
}

const leftAxis = (y, x, found, width) => [
  ...found.map(([value]) => line(x, y(value), x + width, y(value), "grid")),
  ...found.map(([value, written]) => text(x - 7, y(value) + 4, written, "tick", "end")),
];

// Ticks at the values that were run, as many as fit.
function valueTicks(x, values) {
  let end = -Infinity;
  return values.map((value) => {
    const half = widthOf(String(value), 11) / 2;
    const fits = x(value) - half > end + 4;
    if (fits) end = x(value) + half;
    return [value, fits ? String(value) : ""];
  });
}

// --- marks: what the reader can point at, reach with the arrow keys and open
const abouts = new WeakMap();

// `about`: title, rows of [name, value], verdict, groups of cells.
function mark(node, about) {
  abouts.set(node, about);
  node.classList.add("mark");
  node.setAttribute("role", "button");
  node.setAttribute("tabindex", "-1");
  const said = [about.title, ...about.rows.map(([name, value]) => `${name} ${value}`), about.verdict ?? ""];
  node.setAttribute("aria-label", said.filter(Boolean).join(", "));
  return node;
}

const badge = (word, kind) => make("span", { className: `badge ${kind}` }, word);

const tip = {
  node: null,
  over: null,
  at: 0,
  show(target) {
    const about = abouts.get(target);
    if (!about) return;
    this.over = target;
    this.node ??= byId("tip");
    const rows = about.rows.map(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]);
    const groups = about.groups ?? [];
    this.node.replaceChildren(
      make("b", {}, about.title),
      ...(about.verdict ? [badge(`${VERDICT[about.verdict].sign} ${about.verdict}`, VERDICT[about.verdict].tone)] : []),
      make("dl", {}, ...rows),
      ...(about.notes ?? []).map((note) => make("p", {}, note)),
      ...(groups.length ? [make("p", { className: "hint" }, "Click or press Enter for its cells")] : []),
    );
    this.node.hidden = false;
    const [box, mine] = [target.getBoundingClientRect(), this.node.getBoundingClientRect()];
    this.at = box.top;
    const wide = box.width > 220; // a whole row: beside the middle, above or below
    const x = wide ? box.left + box.width / 2 - mine.width / 2 : box.right + 10;
    const left = !wide && x + mine.width > innerWidth - 8 ? box.left - mine.width - 10 : x;
    const above = box.top - mine.height - 8;
    const y = wide ? (above > 8 ? above : box.bottom + 8) : box.top + box.height / 2 - mine.height / 2;
    this.node.style.left = `${Math.max(8, Math.min(left, innerWidth - mine.width - 8))}px`;
    this.node.style.top = `${Math.max(8, Math.min(y, innerHeight - mine.height - 8))}px`;
  },
  hide() {
    this.over = null;
    if (this.node) this.node.hidden = true;
  },
};

function moveFrom(target, key) {
  const chart = target.closest("svg.chart, .marks");
  const all = [...chart.querySelectorAll(".mark")];
  const across = Number(chart.dataset.columns ?? 1);
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across }[key];
  const next = key === "Home" ? all[0] : key === "End" ? all.at(-1) : all[all.indexOf(target) + step];
  if (!next) return;
  for (const other of all) other.setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest", inline: "nearest" });
}

function watchMarks(openCells) {
  const markOf = (event) => (event.target instanceof Element ? event.target.closest(".mark") : null);
  document.addEventListener("pointerover", (event) => { const found = markOf(event); if (found) tip.show(found); else if (!event.target.closest?.("#tip")) tip.hide(); });
  document.addEventListener("focusin", (event) => { const found = markOf(event); if (found) tip.show(found); else tip.hide(); });
  document.addEventListener("click", (event) => {
    const found = markOf(event);
    const groups = found && abouts.get(found)?.groups;
    if (groups?.length) { found.focus({ preventScroll: true }); tip.hide(); openCells(groups); }
  });
  document.addEventListener("keydown", (event) => {
    const found = markOf(event);
    if (event.key === "Escape") tip.hide();
    if (!found) return;
    if (["ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp", "Home", "End"].includes(event.key)) {
      event.preventDefault();
      moveFrom(found, event.key);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      if (found.tagName !== "BUTTON") found.dispatchEvent(new MouseEvent("click", { bubbles: true }));
      else found.click();
    }
  });
  // What scrolls away takes its tip with it.
  document.addEventListener("scroll", () => { if (tip.over && Math.abs(tip.over.getBoundingClientRect().top - tip.at) > 4) tip.hide(); }, { capture: true, passive: true });
}

// --- The data of the page, and what the reader chose. Every choice is in the address, so a link restores it.

const read = () => {
  const raw = JSON.parse(byId("data").textContent);
  const tables = {};
  for (const [name, rows] of Object.entries(raw.tables)) {
    const fields = raw.fields[name];
    tables[name] = rows.map((row) => Object.fromEntries(fields.map((field, index) => [field, row[index]])));
  }
  for (const table of [tables.differences, tables.pairs]) for (const row of table) row.verdict = raw.verdicts[row.verdict];
  const cells = raw.drill.cells.map((row) => Object.fromEntries(raw.drill.fields.map((name, index) => [name, row[index]])));
  const points = raw.points.map((point, index) => {
    const key = point.name ? `${point.experiment}, ${point.name}` : point.experiment;
    const title = point.experiment.toLowerCase().includes(point.dataset.toLowerCase()) ? key : `${point.dataset} (${key})`;
    return { ...point, index, key, title };
  });
  const groups = raw.groups.map(([point, loss, kind, label], index) => ({ index, point, loss, kind, label: label || "timing, all losses" }));
  const byPlace = new Map(groups.filter((group) => group.kind === "train").map((group) => [`${group.point} ${group.loss}`, group.index]));
  const timing = new Map(groups.filter((group) => group.kind === "timing").map((group) => [group.point, group.index]));
  const index = (rows, key) => Map.groupBy ? Map.groupBy(rows, key) : rows.reduce((map, row) => {
    const at = key(row);
    if (!map.has(at)) map.set(at, []);
    map.get(at).push(row);
    return map;
  }, new Map());
  return {
    ...raw, ...tables, cells, points, groups, timing,
    labels: raw.losses.map((loss) => loss.label),
    grouped: index(cells, (cell) => cell.group),
    at: (table, point) => tables[table].filter((row) => row.point === point),
    // The cells of a loss at a point, then those of what it is compared with.
    behind: (point, ...losses) => losses.map((loss) => byPlace.get(`${point} ${loss}`)).filter(known),
  };
};
let data = null;

const EMPTY = { q: "", off: [], metric: "", panels: "", at: "", view: "", axis: "", line: "", cost: "", cells: [] };
const state = { section: "", ...EMPTY };

// #section?metric=accuracy&off=center&off=hinge
function parsed(hash) {
  const [section, ...rest] = hash.replace(/^#/, "").split("?");
  const given = new URLSearchParams(rest.join("?"));
  const found = { section: decodeURIComponent(section), ...EMPTY };
  for (const name of Object.keys(EMPTY)) {
    if (Array.isArray(EMPTY[name])) found[name] = given.getAll(name);
    else if (given.has(name)) found[name] = given.get(name);
  }
  return found;
}

function address() {
  const given = new URLSearchParams();
  for (const [name, empty] of Object.entries(EMPTY)) {
    if (Array.isArray(empty)) for (const one of state[name]) given.append(name, one);
    else if (state[name] !== empty) given.set(name, state[name]);
  }
  const query = String(given);
  return `#${state.section}${query ? `?${query}` : ""}`;
}

const watchers = [];
function choose(changes, { push = false } = {}) {
  Object.assign(state, changes);
  if (address() !== (location.hash || "#")) history[push ? "pushState" : "replaceState"](null, "", address());
  for (const watcher of watchers) watcher(Object.keys(changes));
}

// --- what the choices mean; a name in an old link that no longer exists means the default
const chosen = {
  metric: () => Math.max(0, data.metrics.findIndex((metric) => metric.name === state.metric)),
  // Without a choice: for a chart along an axis an experiment that has one, else the first with several losses.
  point: (along = false) => {
    const asked = data.points.find((point) => point.key === state.at);
    if (asked) return asked;
    if (data.along.length && along) return data.points[data.along[0].lines[0].points.at(-1)];
    const losses = (point) => data.at("means", point.index).filter((row) => row.metric === 0).length;
    return data.points.find((point) => point.answer && losses(point) > 2) ?? data.points.find(losses) ?? data.points[0];
  },
  view: () => (VIEWS.find((view) => view.id === state.view && view.has()) ?? VIEWS.find((view) => view.has()))?.id,
};

// A text must contain every word of the filter, and none that follows a minus.
const fits = (words, query) => query.toLowerCase().split(/\s+/).filter(Boolean).every((word) =>
  word.length > 1 && word.startsWith("-") ? !words.includes(word.slice(1)) : words.includes(word));
const isOff = (loss) => state.off.includes(data.labels[loss]);
const isShown = (loss, ...words) => !isOff(loss) && (!state.q || fits([data.labels[loss], ...words].join(" ").toLowerCase(), state.q));
const wordsOf = (point) => `${point.experiment} ${point.where}`;
const baseName = () => data.labels[0];

// --- The page: theme, filter, selectors, the table of contents, print.

const THEME = "lossbench-theme";
const root = document.documentElement;

// The theme is set before the first paint.
const remembered = () => { try { return localStorage.getItem(THEME); } catch { return null; } };
const remember = (value) => { try { localStorage.setItem(THEME, value); } catch { /* storage is blocked */ } };
const system = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
if (["dark", "light"].includes(remembered())) root.dataset.theme = remembered();
root.classList.add("js");

function themeButton() {
  const button = byId("theme-toggle");
  const label = () => { button.textContent = isDark() ? "Light theme" : "Dark theme"; };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remember(root.dataset.theme);
    label();
  });
  system.addEventListener("change", label);
  label();
}

// --- cards: a chart with its finding, drawn when it comes near the window or is printed
function card(figure, chart) {
  const [title, subtitle, plot, foot] = ["finding", "sub", "plot", "foot"].map((name) => figure.querySelector(`.${name}`));
  let [stale, near, width] = [true, false, 0];
  const paint = (force) => {
    if (!stale || !(near || force) || figure.closest("[hidden]")) return;
    width = Math.floor(plot.clientWidth);
    if (width < 40) return;
    const made = chart(width);
    title.textContent = made.title;
    subtitle.textContent = made.subtitle;
    plot.replaceChildren(...made.nodes);
    const key = (made.legend ?? []).map((word) => make("span", { className: `tone-${VERDICT[word].tone}` }, `${VERDICT[word].sign} ${word}`));
    foot.replaceChildren(...(key.length ? [make("span", { className: "verdicts" }, ...key)] : []), made.note ?? "");
    figure.classList.toggle("empty", Boolean(made.empty));
    stale = false;
  };
  new IntersectionObserver((changes) => { near = changes.at(-1).isIntersecting; paint(false); }, { rootMargin: "300px 0px" }).observe(figure);
  new ResizeObserver(() => { if (Math.abs(Math.floor(plot.clientWidth) - width) > 2) { stale = true; requestAnimationFrame(() => paint(false)); } }).observe(plot);
  return { redraw: () => { stale = true; paint(false); }, force: () => paint(true), figure };
}

// --- selectors
function selector(name, label, onChange) {
  const select = make("select");
  select.addEventListener("change", () => onChange(select.value));
  const node = make("label", { className: "choice" }, make("span", {}, label), select);
  node.dataset.choice = name;
  const fill = (options, value) => { // options: [value, text] or {label, options}
    const option = ([given, written]) => make("option", { value: given, selected: given === value }, written);
    select.replaceChildren(...options.map((one) => (Array.isArray(one) ? option(one) : make("optgroup", { label: one.label }, ...one.options.map(option)))));
    node.hidden = options.length < 2 && !options[0]?.options;
  };
  return { node, fill };
}

const metricOptions = (has) => {
  const some = data.metrics.map((metric, index) => [metric, index]).filter(([, index]) => has.has(index));
  return some.map(([metric]) => [metric.name, capital(titled(metric))]);
};

function differencesCard() {
  const box = byId("differences-choices");
  if (!box) return null;
  const metric = selector("metric", "Metric", (value) => choose({ metric: value }));
  const panels = selector("panels", "Panels", (value) => choose({ panels: value }));
  box.append(panels.node, metric.node);
  const several = [...new Set(data.differences.map((row) => row.point))];
  const byExperiment = new Map();
  for (const index of several) {
    const { experiment } = data.points[index];
    byExperiment.set(experiment, (byExperiment.get(experiment) ?? 0) + 1);
  }
  const main = { value: "" };
  const update = () => {
    metric.fill(metricOptions(new Set(data.differences.map((row) => row.metric))), data.metrics[chosen.metric()].name);
    const each = [...byExperiment].map(([name, count]) => [name, count > 1 ? `${name}: ${count} points` : name]);
    const all = panelsChosen(chosen.metric()).length;
    const shownAll = data.points.filter((point) => point.chief).length;
    panels.fill([[main.value, "As in the first table"], ...(shownAll > all || state.panels ? [["all", "All experiments"]] : []), ...(each.length > 1 || several.length > 1 ? each : [])], state.panels);
  };
  return { update, ...card(byId("differences-chart"), differences) };
}

const VIEWS = [
  { id: "axis", name: "Along an axis", chart: alongAxis, has: () => data.along.length, uses: ["metric", "axis", "line"] },
  { id: "cost", name: "Against cost", chart: againstCost, has: () => data.memory.length || data.phases.length, uses: ["metric", "cost"] },
  { id: "pairs", name: "All pairs", chart: allPairs, has: () => data.pairs.length, uses: [] },
  { id: "curves", name: "Learning curves", chart: learningCurves, has: () => data.curves.length, uses: [] },
  { id: "memory", name: "Memory", chart: memoryByCause, has: () => data.memory.length, uses: [] },
  { id: "phases", name: "Phases of a step", chart: phasesOfStep, has: () => data.phases.length, uses: [] },
  { id: "angles", name: "Angles by class", chart: anglesByClass, has: () => data.angles.length, uses: [] },
];

function exploreCard() {
  const section = byId("explore");
  const views = VIEWS.filter((view) => view.has());
  if (!views.length) { section.remove(); document.querySelector('nav a[href="#explore"]')?.parentElement.remove(); return null; }
  const point = selector("at", "Experiment", (value) => choose({ at: value, line: "" }));
  const metric = selector("metric", "Metric", (value) => choose({ metric: value }));
  const axis = selector("axis", "Axis", (value) => choose({ axis: value, line: "" }));
  const across = selector("line", "At", (value) => choose({ line: value }));
  const cost = selector("cost", "Cost", (value) => choose({ cost: value }));
  byId("explore-choices").append(point.node, metric.node, axis.node, across.node, cost.node);
  const tabs = byId("explore-tabs");
  const cards = new Map();
  for (const view of views) {
    const tab = make("button", { type: "button", id: `tab-${view.id}` }, view.name);
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", `view-${view.id}`);
    tab.addEventListener("click", () => choose({ view: view.id }));
    tabs.append(tab);
    const figure = byId("view-blank").content.firstElementChild.cloneNode(true);
    figure.id = `view-${view.id}`;
    figure.setAttribute("role", "tabpanel");
    figure.setAttribute("aria-labelledby", tab.id);
    byId("explore-views").append(figure);
    cards.set(view.id, card(figure, view.chart));
  }
  tabs.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const all = [...tabs.children];
    const next = all[(all.indexOf(document.activeElement) + step + all.length) % all.length];
    next.focus();
    next.click();
  });
  const hasValues = new Set(data.means.map((row) => row.point));
  const current = () => views.find((view) => view.id === chosen.view());
  const update = () => {
    const view = current();
    for (const tab of tabs.children) {
      const on = tab.id === `tab-${view.id}`;
      tab.setAttribute("aria-selected", String(on));
      tab.tabIndex = on ? 0 : -1;
      if (on) tabs.scrollLeft = Math.max(0, tab.offsetLeft - tabs.offsetLeft - 40); // on a phone not all tabs fit
    }
    for (const [id, { figure }] of cards) figure.classList.toggle("away", id !== view.id);
    const here = chosen.point(view.id === "axis");
    const options = [];
    for (const one of data.points.filter((entry) => hasValues.has(entry.index))) {
      const last = options.at(-1);
      const entry = [one.key, one.title];
      if (last?.label === one.experiment) last.options.push(entry);
      else options.push({ label: one.experiment, options: [entry] });
    }
    point.fill(options.flatMap((group) => (group.options.length > 1 ? [group] : group.options)), here.key);
    const uses = (name) => view.uses.includes(name);
    metric.fill(uses("metric") ? metricOptions(new Set([...data.means, ...data.differences].map((row) => row.metric))) : [], data.metrics[chosen.metric()].name);
    const entries = uses("axis") ? linesOf(here) : [];
    axis.fill(entries.map((entry) => [entry.axis, entry.axis]), (entries.find((entry) => entry.axis === state.axis) ?? entries[0])?.axis);
    const entry = entries.find((one) => one.axis === state.axis) ?? entries[0];
    const fallback = entry ? Math.max(0, entry.lines.findIndex((one) => one.points.includes(here.index))) : 0;
    across.fill(entry ? entry.lines.map((one, index) => [String(index), one.name || "all"]) : [], state.line || String(fallback));
    const costs = uses("cost") ? costsAt(here) : {};
    const kinds = Object.keys(costs).filter((name) => costs[name].size);
    cost.fill(kinds.map((name) => [name, capital(COSTS[name].name)]), kinds.includes(state.cost) ? state.cost : kinds[0]);
  };
  return {
    update,
    redraw: () => cards.forEach((one) => one.redraw()),
    force: () => cards.forEach((one) => one.force()),
  };
}

function claimsCard() {
  const figure = byId("claims-chart");
  if (!figure) return null;
  if (!data.statements.length) { figure.remove(); return null; }
  return card(figure, claimsByCase);
}

// --- the filter: losses on and off, and words for every table and chart
function filterBox() {
  const input = byId("filter");
  const legend = byId("legend");
  let waiting = 0;
  input.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => choose({ q: input.value.trim() }), 120);
  });
  input.addEventListener("keydown", (event) => { if (event.key === "Escape" && input.value) { input.value = ""; choose({ q: "" }); } });
  const light = (loss) => {
    for (const node of document.querySelectorAll("svg.chart [data-l]")) node.classList.toggle("dim", loss !== null && node.dataset.l !== String(loss));
  };
  const buttons = data.losses.map((loss, index) => {
    const swatch = tinted(draw("svg", { viewBox: "-8 -8 16 16", width: 16, height: 16, "aria-hidden": "true" }, draw("path", { d: SHAPES[loss.marker](5.5), class: "solid" })), index);
    const button = make("button", { type: "button", title: loss.label }, swatch, make("span", {}, fitting(loss.label, 205, 12.5)));
    button.setAttribute("aria-label", loss.label);
    button.addEventListener("click", () => {
      const off = new Set(state.off);
      if (off.has(loss.label)) off.delete(loss.label); else off.add(loss.label);
      choose({ off: [...off] });
    });
    button.addEventListener("dblclick", () => choose({ off: data.labels.filter((label) => label !== loss.label) }));
    button.addEventListener("pointerenter", () => light(index));
    button.addEventListener("pointerleave", () => light(null));
    button.addEventListener("focus", () => light(index));
    button.addEventListener("blur", () => light(null));
    return button;
  });
  legend.append(...buttons.map((button) => make("li", {}, button)));
  byId("losses-all").addEventListener("click", () => choose({ off: [] }));
  byId("losses-none").addEventListener("click", () => choose({ off: [...data.labels] }));
  byId("filter-clear").addEventListener("click", () => { input.value = ""; choose({ q: "", off: [] }); });
  byId("copy-link").addEventListener("click", async (event) => {
    brieflySaid(event.currentTarget, (await copy(location.href)) ? "Copied" : "Blocked");
  });
  const folded = byId("filter-fold");
  const wide = matchMedia("(min-width: 64.01rem)");
  const unfold = () => { folded.open = wide.matches; };
  wide.addEventListener("change", unfold);
  unfold();
  return () => {
    if (document.activeElement !== input) input.value = state.q;
    buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(!isOff(index))));
    const parts = [state.q ? `“${state.q}”` : "", state.off.length ? `${counted(data.losses.length - state.off.length, "loss", "losses")} of ${data.losses.length}` : ""].filter(Boolean);
    byId("filter-said").textContent = parts.length ? `: ${parts.join(", ")}` : "";
    byId("filter-clear").hidden = !parts.length;
  };
}

// --- the current section in the table of contents, and links to sections that keep what was chosen
function contents() {
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const sections = [...document.querySelectorAll("main section[id]")];
  const go = (slug) => {
    const section = byId(slug);
    if (!section) return;
    const fold = section.querySelector(":scope > details");
    if (fold) fold.open = true;
    section.scrollIntoView();
    requestAnimationFrame(() => section.scrollIntoView()); // tables on the way have their true heights only now
  };
  let held = 0; // while a jump scrolls, its target is the current section
  const point = (slug) => {
    for (const [name, link] of links) {
      if (name === slug) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
    }
    const [bar, link] = [document.querySelector("nav ol"), links.get(slug)];
    if (link && bar.scrollWidth > bar.clientWidth) bar.scrollLeft = link.offsetLeft - bar.clientWidth / 3;
  };
  for (const [slug, link] of links) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      choose({ section: slug }, { push: true });
    });
  }
  const update = () => {
    if (performance.now() < held) return;
    const limit = innerHeight * 0.3;
    const here = sections.filter((section) => section.getBoundingClientRect().top <= limit).at(-1) ?? sections[0];
    if (here) point(here.id);
  };
  addEventListener("scroll", update, { passive: true });
  addEventListener("resize", update);
  return {
    go: (slug) => {
      held = performance.now() + 500;
      point(slug);
      go(slug);
    },
    update,
  };
}

// Paper has every view of the chosen point, every row, and no folds.
function printing(cards) {
  let opened = [];
  const before = () => {
    if (root.classList.contains("print")) return;
    root.classList.add("print");
    opened = [...document.querySelectorAll("main details:not([open])")];
    for (const fold of opened) fold.open = true;
    for (const one of cards) { one.redraw(); one.force(); }
  };
  const after = () => {
    if (!root.classList.contains("print")) return;
    root.classList.remove("print");
    for (const fold of opened) fold.open = false;
    for (const one of cards) one.redraw();
  };
  addEventListener("beforeprint", before);
  addEventListener("afterprint", after);
  matchMedia("print").addEventListener("change", (event) => (event.matches ? before() : after()));
}

document.addEventListener("DOMContentLoaded", () => {
  data = read();
  Object.assign(state, parsed(location.hash));
  themeButton();
  const dialog = cellsDialog();
  watchMarks(dialog.open);
  const filterTables = watchTables(dialog.open);
  const updateFilter = filterBox();
  const [differenceCard, explore, claims] = [differencesCard(), exploreCard(), claimsCard()];
  const cards = [differenceCard, explore, claims].filter(Boolean);
  const toc = contents();
  const follow = (changes) => {
    const any = (...names) => changes.some((name) => names.includes(name));
    if (any("q", "off")) { updateFilter(); filterTables(); }
    if (any("q", "off", "metric", "panels")) { differenceCard?.update(); differenceCard?.redraw(); }
    if (any("q", "off", "metric", "at", "view", "axis", "line", "cost")) { explore?.update(); explore?.redraw(); }
    if (any("q")) claims?.redraw();
    if (any("section") && state.section) toc.go(state.section);
    if (any("cells")) dialog.restore();
    tip.hide();
  };
  watchers.push(follow);
  follow(Object.keys(EMPTY));
  if (state.section) toc.go(state.section); else toc.update();
  addEventListener("popstate", () => {
    const next = parsed(location.hash);
    const changes = Object.keys(next).filter((name) => String(next[name]) !== String(state[name]));
    Object.assign(state, next);
    follow(changes);
  });
  printing(cards);
  root.dataset.ready = "true";
  performance.mark("lossbench-ready");
});

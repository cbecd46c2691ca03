// Filters and search: matching nodes, and incidents and checks of these nodes.

const controls = byId("controls");
const search = byId("search");
const nodeMap = byId("node-map");
const MOST_MATCHES = 60;

const incidents = report.incidents.map(([ident, letter, owner, ranges]) => {
  const article = byId(ident);
  return { article, letter, owner, ranges, text: article ? article.textContent.toLowerCase() : "" };
});
const cards = report.cards.map(([ident, letter, ranges]) => ({ article: byId(ident), letter, ranges }));
const chips = [...document.querySelectorAll("#nodes .chips a[data-node]")].map((link) => link.parentElement);
const matched = new Uint8Array(count);
const before = new Uint32Array(count + 1); // number of matching nodes before an index

const knownNames = new Set(lowerNames);
const NODE_SET = /^([^[\]]*)\[([\d,-]+)\]([^[\]]*)$/;

/** Return a test of a node's name: the name of a node, a node set such as gpu[001-010], or part of a name. */
function nameTest(piece) {
  if (knownNames.has(piece)) return (name) => name === piece;
  const set = NODE_SET.exec(piece);
  if (!set) return (name) => name.includes(piece);
  const [, lead, listed, tail] = set;
  const ranges = parseRanges(listed);
  return (name) => {
    const middle = name.slice(lead.length, name.length - tail.length);
    return name.startsWith(lead) && name.endsWith(tail) && /^\d+$/.test(middle) && inRanges(ranges, Number(middle));
  };
}

function readFilter() {
  const form = new FormData(controls);
  const number = (name) => (form.get(name) ? Number(form.get(name)) : -1);
  const text = search.value.trim().toLowerCase().slice(0, 2000);
  const pieces = text.split(/[\s,]+(?![^[]*\])/).filter(Boolean).slice(0, 100);
  return {
    text,
    names: pieces.map(nameTest),
    onlyNodes: pieces.length > 0 && pieces.every((piece) => knownNames.has(piece) || NODE_SET.test(piece)),
    letters: form.getAll("status").map((status) => LETTER[status]).join(""),
    group: number("class"), rack: number("rack"), leaf: number("leaf"), owner: form.get("owner") || "",
  };
}

const anyMatch = (ranges) => ranges.some(([first, last]) => before[last + 1] > before[first]);

function countBefore() {
  for (let place = 0; place < count; place++) before[place + 1] = before[place] + matched[place];
}

/** Mark the nodes that match by name, class, rack and leaf, then those of incidents that match by text. */
function matchNodes(filter, byWords) {
  const wirings = filter.leaf < 0 ? null : new Set(report.wirings.flatMap((leaves, place) => (leaves.includes(filter.leaf) ? [place] : [])));
  for (let place = 0; place < count; place++) {
    const name = lowerNames[place];
    matched[place] = (!filter.text || filter.names.some((test) => test(name))) ? 1 : 0;
  }
  for (const one of byWords) for (const [first, last] of one.ranges) matched.fill(1, first, last + 1);
  for (let place = 0; place < count; place++) {
    if ((filter.group >= 0 && report.class[place] !== filter.group) || (filter.rack >= 0 && report.rack[place] !== filter.rack)
      || (wirings && !wirings.has(report.wiring[place]))) matched[place] = 0;
  }
}

function applyFilter() {
  const filter = readFilter();
  const placed = filter.group >= 0 || filter.rack >= 0 || filter.leaf >= 0;
  const active = Boolean(filter.text || filter.letters || filter.owner || placed);
  const byWords = filter.text && !filter.onlyNodes ? incidents.filter((one) => one.text.includes(filter.text)) : [];
  matchNodes(filter, byWords);
  countBefore();
  let shown = 0;
  for (const one of incidents) {
    const about = anyMatch(one.ranges) || (!placed && (!filter.text || byWords.includes(one)));
    const keep = about && (!filter.owner || one.owner === filter.owner) && (!filter.letters || filter.letters.includes(one.letter));
    one.keep = keep;
    if (one.article) one.article.hidden = !keep;
    shown += keep;
  }
  for (const one of cards) {
    const keep = (anyMatch(one.ranges) || (!placed && !filter.text)) && (!filter.letters || filter.letters.includes(one.letter));
    if (one.article) one.article.hidden = !keep;
  }
  if (filter.letters || filter.owner) {
    const owned = filter.owner ? new Uint8Array(count) : null;
    if (owned) for (const one of incidents) if (one.owner === filter.owner) for (const [first, last] of one.ranges) owned.fill(1, first, last + 1);
    for (let place = 0; place < count; place++) {
      if ((filter.letters && !filter.letters.includes(report.status[place])) || (owned && !owned[place])) matched[place] = 0;
    }
    countBefore();
  }
  showResult(active, shown);
}

function showResult(active, shown) {
  const nodes = before[count];
  const left = report.incident_total - incidents.length;
  const all = left ? `the ${incidents.length} incidents on this page (${report.incident_total.toLocaleString("en")} in the report)` : `${incidents.length} incidents`;
  byId("counted").textContent = active ? `${shown} of ${all}, ${nodes.toLocaleString("en")} of ${count.toLocaleString("en")} nodes` : "";
  byId("reset").hidden = !active;
  const nothing = document.querySelector("#incidents .nothing");
  nothing.hidden = !active || shown > 0;
  const more = document.querySelector("#incidents > details.list");
  if (more) {
    const inside = incidents.some((one) => one.keep && one.article && more.contains(one.article));
    more.hidden = active && !inside;
    if (active && inside) more.open = true;
  }
  chips.forEach((chip, place) => { chip.hidden = active && !matched[place]; });
  if (nodeMap) {
    byId("map-dim").setAttribute("d", active ? dimmed() : "");
    listMatches(active);
  }
}

/** Return rectangles that cover all nodes that do not match, one per run in a row. */
function dimmed() {
  const columns = Number(nodeMap.dataset.columns), cell = Number(nodeMap.dataset.cell);
  let path = "";
  for (let place = 0; place < count;) {
    if (matched[place]) { place++; continue; }
    const first = place, end = (Math.floor(place / columns) + 1) * columns;
    while (place < count && place < end && !matched[place]) place++;
    path += `M${(first % columns) * cell} ${Math.floor(first / columns) * cell}h${(place - first) * cell}v${cell}h-${(place - first) * cell}z`;
  }
  return path;
}

/** List the worst nodes that match, or nodes with problems if no filter is set. */
function listMatches(active) {
  const box = byId("matches"), list = box.querySelector("ul");
  const chosen = [];
  for (const letter of active ? URGENCY : "fnuw") {
    for (let place = 0; place < count && chosen.length < MOST_MATCHES; place++) {
      if (report.status[place] === letter && (!active || matched[place])) chosen.push(place);
    }
  }
  const total = active ? before[count] : [...report.status].filter((letter) => "fnuw".includes(letter)).length;
  list.replaceChildren(...chosen.map((place) => element("li", "", nodeLink(place))));
  byId("h-matches").textContent = active ? "Nodes that match" : "Nodes with problems";
  box.querySelector(".more-matches").textContent = total > chosen.length ? `and ${(total - chosen.length).toLocaleString("en")} more` : "";
  box.hidden = !chosen.length;
}

function offerChoices() {
  const choices = { class: report.classes, rack: report.racks, leaf: report.leaves };
  let any = false;
  for (const [name, values] of Object.entries(choices)) {
    const order = values.map((value, place) => [value, place]).sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
    any = offer(name, order) || any;
  }
  const owners = [...new Set(report.incidents.map((row) => row[2]))];
  any = offer("owner", owners.map((owner) => [owner, owner])) || any;
  controls.querySelector(".more-filters").hidden = !any;
}

function offer(name, order) {
  if (order.length < 2) return false;
  const select = controls.querySelector(`select[name="${name}"]`);
  for (const [label, value] of order) {
    const option = element("option", "", label);
    option.value = String(value);
    select.append(option);
  }
  select.parentElement.hidden = false;
  return true;
}

offerChoices();
for (const box of controls.querySelectorAll("input[type=checkbox]")) {
  const present = report.status.includes(LETTER[box.value]) || report.incidents.some((row) => row[1] === LETTER[box.value]);
  box.parentElement.hidden = !present;
}
controls.hidden = false;
controls.addEventListener("input", applyFilter);
controls.addEventListener("submit", (event) => event.preventDefault());
controls.addEventListener("reset", () => setTimeout(applyFilter));
applyFilter();

// The panel of one node: its incidents, findings and drawing; and the map that opens it.

const panel = byId("panel");
const places = new Map(report.names.map((name, place) => [name, place]));

function section(title, ...content) {
  return element("section", "", element("h3", "", title), ...content);
}

function statusBadge(status) {
  return element("span", `badge s-${status}`, icon(status), status.replace("-", " "));
}

function describeNode(place) {
  const parts = [];
  const facts = element("p", "panel-facts", statusBadge(STATUS[report.status[place]]));
  if (report.class[place] >= 0) facts.append(element("span", "", `class ${report.classes[report.class[place]]}`));
  if (report.rack.length && report.rack[place] >= 0) facts.append(element("span", "", `rack ${report.racks[report.rack[place]]}`));
  parts.push(facts);
  for (const [where, reason] of report.silent) {
    if (inRanges(parseRanges(where), place)) parts.push(section("No answer", element("p", "", reason)));
  }
  const own = report.incidents.flatMap(([ident, letter, , ranges], number) => (inRanges(ranges, place) ? [[ident, letter, number]] : []));
  if (own.length) parts.push(section("Incidents", element("ul", "findings", ...own.map(incidentItem))));
  const found = report.findings.filter((row) => inRanges(row[5], place)).sort((a, b) => URGENCY.indexOf(a[1]) - URGENCY.indexOf(b[1]));
  if (found.length) parts.push(section("Findings", element("ul", "findings", ...found.map(findingItem))));
  else if (report.status[place] === "p") parts.push(element("p", "muted", "Every check that applies passed."));
  if (report.left) parts.push(element("p", "muted", `${report.left} findings of this report are in the JSON report only.`));
  parts.push(...drawing(place), ...rails(place));
  return parts;
}

function incidentItem([ident, letter, number]) {
  const article = byId(ident);
  const title = article ? article.querySelector(".cause").textContent : "";
  const link = element("a", "", `${number + 1}.`, title ? ` ${title}` : "");
  link.href = `#${ident}`;
  return element("li", `s-${STATUS[letter]}`, icon(STATUS[letter]), link);
}

/** Return a sentence with text between backticks as code. */
function withCode(text) {
  return text.split(/`([^`]+)`/).map((piece, number) => (number % 2 ? element("code", "", piece) : piece));
}

function findingItem([check, letter, subject, message, next]) {
  const item = element("li", `s-${STATUS[letter]}`, icon(STATUS[letter]), hiddenText(`${STATUS[letter]}: `));
  if (subject && !message.startsWith(subject)) item.append(element("span", "subject", subject), " ");
  item.append(message, " ", element("code", "", report.checks[check]));
  if (next) item.append(element("p", "muted", ...withCode(next)));
  return item;
}

function drawing(place) {
  const ident = report.groups[report.group[place]];
  const group = ident && byId(ident);
  if (!group) {
    return report.status[place] === "n" ? [] : [element("p", "muted", "Its drawing is not on this page: judge only its evidence to draw it.")];
  }
  const same = group.querySelector("[data-same]");
  const picture = (same ? byId(same.dataset.same) : group).querySelector("svg.topo");
  const more = element("a", "", "Its checks, and details of the collection");
  more.href = `#${ident}`;
  if (!picture) return [element("p", "muted", more)];
  const box = element("div", "scroll picture", picture.cloneNode(true));
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", "Drawing of the node");
  return [section("Drawing", box, element("p", "", more))];
}

function rails(place) {
  const leaves = report.wirings[report.wiring[place]];
  if (!leaves) return [];
  const items = leaves.map((leaf, rail) => element("li", "", `rail ${rail}: `, element("code", "", leaf < 0 ? "not known" : report.leaves[leaf])));
  return [section("Leaves", element("ul", "rail-list", ...items))];
}

function openNode(place) {
  byId("panel-name").textContent = report.names[place];
  byId("panel-body").replaceChildren(...describeNode(place));
  if (!panel.open) panel.showModal();
  panel.scrollTop = 0;
  byId("panel-name").focus();
  history.replaceState(null, "", `#node=${encodeURIComponent(report.names[place])}`);
}

panel.addEventListener("close", () => {
  if (location.hash.startsWith("#node=")) history.replaceState(null, "", location.pathname + location.search);
});
panel.addEventListener("click", (event) => {
  if (event.target === panel) panel.close(); // the backdrop
  const link = event.target.closest("a[href]");
  if (link && !link.dataset.node) panel.close();
});
byId("panel-close").addEventListener("click", () => panel.close());

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-node]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  openNode(Number(link.dataset.node));
});

/** Go to the target of the address: a node, an incident, or any place within a fold. */
function followHash() {
  let target = "";
  try { target = decodeURIComponent(location.hash.slice(1)); } catch { return; }
  if (target.startsWith("node=")) {
    const place = places.get(target.slice(5));
    if (place === undefined) notify("This node is not in this report.");
    else openNode(place);
    return;
  }
  const found = target && byId(target.replace(/^incident=/, "incident-"));
  if (found) {
    found.hidden = false;
    reveal(found);
    if (found.tagName === "DETAILS") found.open = true;
    found.scrollIntoView();
  } else if (/^incident[-=]/.test(target)) {
    const left = report.incident_total - report.incidents.length;
    notify(left ? `This incident is not among the ${report.incidents.length} on this page; the JSON report lists all ${report.incident_total}.`
      : "This incident is not in this report: it may be resolved.");
  }
}

function placeAt(event) {
  const box = nodeMap.querySelector("svg").getBoundingClientRect();
  const columns = Number(nodeMap.dataset.columns), rows = Math.ceil(count / columns);
  const x = Math.floor(((event.clientX - box.left) / box.width) * columns);
  const y = Math.floor(((event.clientY - box.top) / box.height) * rows);
  const place = y * columns + x;
  return x >= 0 && x < columns && y >= 0 && place < count ? place : -1;
}

let pointed = 0;

function point(place) {
  const cursor = byId("map-cursor"), columns = Number(nodeMap.dataset.columns), cell = Number(nodeMap.dataset.cell);
  pointed = place;
  cursor.setAttribute("x", (place % columns) * cell - 1);
  cursor.setAttribute("y", Math.floor(place / columns) * cell - 1);
  cursor.setAttribute("visibility", "visible");
  byId("map-name").textContent = `${report.names[place]}: ${STATUS[report.status[place]].replace("-", " ")}`;
}

function stepOf(key) {
  const columns = Number(nodeMap.dataset.columns);
  return { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, Home: -count, End: count }[key];
}

if (nodeMap) {
  nodeMap.tabIndex = 0;
  nodeMap.setAttribute("role", "group");
  nodeMap.setAttribute("aria-label", "Map of the nodes: arrow keys move, Enter opens a node");
  nodeMap.addEventListener("pointermove", (event) => { const place = placeAt(event); if (place >= 0) point(place); });
  nodeMap.addEventListener("click", (event) => { const place = placeAt(event); if (place >= 0) openNode(place); });
  nodeMap.addEventListener("focus", () => point(pointed));
  nodeMap.addEventListener("keydown", (event) => {
    const step = stepOf(event.key);
    if (event.key === "Enter") openNode(pointed);
    else if (step) { event.preventDefault(); point(Math.max(0, Math.min(count - 1, pointed + step))); }
  });
}

"use strict";
// The data of the page, and helpers. Text of the report is only set as text, never as markup.

const report = JSON.parse(document.getElementById("data").textContent);
const count = report.names.length;
const lowerNames = report.names.map((name) => name.toLowerCase());
const STATUS = { f: "fail", u: "unknown", w: "warn", p: "pass", s: "skip", n: "no-answer" };
const LETTER = Object.fromEntries(Object.entries(STATUS).map(([letter, status]) => [status, letter]));
const URGENCY = "fnuwps";

const byId = (id) => document.getElementById(id);

/** Return the ranges of "0-3,7" as pairs of first and last index. */
function parseRanges(text) {
  return text ? text.split(",").map((piece) => {
    const [first, last] = piece.split("-").map(Number);
    return [first, last === undefined ? first : last];
  }) : [];
}

const inRanges = (ranges, place) => ranges.some(([first, last]) => first <= place && place <= last);

for (const row of report.incidents) row[3] = parseRanges(row[3]);
for (const row of report.cards) row[2] = parseRanges(row[2]);
for (const row of report.findings) row[5] = parseRanges(row[5]);

function element(tag, className, ...content) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...content);
  return made;
}

function icon(status) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  for (const [key, value] of [["class", "i"], ["width", 14], ["height", 14], ["aria-hidden", "true"]]) svg.setAttribute(key, value);
  use.setAttribute("href", `#i-${status}`);
  svg.append(use);
  return svg;
}

function hiddenText(text) {
  return element("span", "hidden", text);
}

/** Return a link that opens the panel of a node. */
function nodeLink(place) {
  const status = STATUS[report.status[place]];
  const link = element("a", `where s-${status}`, icon(status), hiddenText(`${status.replace("-", " ")}: `), report.names[place]);
  link.href = `#node=${encodeURIComponent(report.names[place])}`;
  link.dataset.node = place;
  return link;
}

/** Open the folds around an element. */
function reveal(target) {
  for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
}

document.documentElement.classList.add("js");
for (const tools of document.querySelectorAll(".tools")) tools.hidden = false;
for (const note of document.querySelectorAll(".needs-script")) note.hidden = true;

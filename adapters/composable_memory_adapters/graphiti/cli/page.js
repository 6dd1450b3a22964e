// Places the entities by forces: all push each other away, facts pull like springs. It begins from a spiral,
// so that the same graph always looks the same.
const { nodes, links } = JSON.parse(document.getElementById("graph").textContent);
const svg = document.querySelector("svg");
const SPRING = 170, PUSH = 9000, RADIUS = 7, ROOM = 90;

nodes.forEach((node, i) => {
  node.x = 60 * Math.sqrt(i) * Math.cos(2.4 * i);
  node.y = 60 * Math.sqrt(i) * Math.sin(2.4 * i);
});
for (let heat = 1; heat > 0.01; heat *= 0.985) {
  nodes.forEach((node) => { node.dx = -0.02 * node.x; node.dy = -0.03 * node.y; });
  for (const a of nodes) for (const b of nodes) if (a !== b) {
    const x = a.x - b.x, y = a.y - b.y, square = Math.max(x * x + y * y, 1);
    a.dx += (PUSH * x) / (square * Math.sqrt(square));
    a.dy += (PUSH * y) / (square * Math.sqrt(square));
  }
  for (const { source, target } of links) {
    const a = nodes[source], b = nodes[target], x = b.x - a.x, y = b.y - a.y;
    const length = Math.max(Math.hypot(x, y), 1), pull = (0.05 * (length - SPRING)) / length;
    a.dx += pull * x; a.dy += pull * y;
    b.dx -= pull * x; b.dy -= pull * y;
  }
  for (const node of nodes) {
    const step = Math.min(1, (40 * heat) / Math.max(Math.hypot(node.dx, node.dy), 1e-9));
    node.x += step * node.dx;
    node.y += step * node.dy;
  }
}

function add(parent, name, attributes, text) {
  const element = document.createElementNS(svg.namespaceURI, name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (text !== undefined) element.textContent = text;
  return parent.appendChild(element);
}

for (const link of links) {
  const { source, target, holds, words, title } = link;
  const a = nodes[source], b = nodes[target], x = b.x - a.x, y = b.y - a.y, length = Math.hypot(x, y) || 1;
  const gap = (RADIUS + 3) / length;
  const group = (link.group = add(svg, "g", { class: holds ? "link" : "link once" }));
  add(group, "title", {}, title);
  add(group, "line", { x1: a.x + gap * x, y1: a.y + gap * y, x2: b.x - gap * x, y2: b.y - gap * y });
  add(group, "text", { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 - 4 }, words);
}
nodes.forEach((node, number) => {
  const { x, y, name, kind, title, centre } = node;
  const group = node.group = add(svg, "g", { class: "entity k" + kind + (centre ? " centre" : "") });
  add(group, "title", {}, title);
  add(group, "circle", { cx: x, cy: y, r: centre ? RADIUS + 4 : RADIUS });
  add(group, "text", { x: x, y: y - RADIUS - 8 }, name.length > 30 ? name.slice(0, 29) + "…" : name);
  group.addEventListener("pointerenter", () => mark(number));
  group.addEventListener("pointerleave", () => mark(null));
  group.addEventListener("click", () => { find.value = name; show(); });
});
const xs = nodes.map((node) => node.x), ys = nodes.map((node) => node.y);
const left = Math.min(...xs) - ROOM, top_ = Math.min(...ys) - ROOM / 2;
if (nodes.length) {
  svg.setAttribute("viewBox", [left, top_, Math.max(...xs) + ROOM - left, Math.max(...ys) + ROOM / 2 - top_].join(" "));
} else {
  svg.remove();
}

// The pointer shows what is around an entity, the field what has these words, the slider what held on a day.
const find = document.getElementById("find"), when = document.getElementById("when");
const rows = [...document.querySelectorAll("tbody tr")];
const span = (row) => ["from", "to"].map((end) => (row.dataset[end] ? Number(row.dataset[end]) : null));

function mark(number) {
  const near = links.filter(({ source, target }) => source === number || target === number);
  const around = new Set([number, ...near.flatMap(({ source, target }) => [source, target])]);
  svg.classList.toggle("hovered", number !== null);
  links.forEach((link) => link.group?.classList.toggle("near", near.includes(link)));
  nodes.forEach((node, i) => node.group.classList.toggle("near", around.has(i)));
}

function show() {
  const day = Number(when.value), words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  const has = (text) => words.every((word) => text.toLowerCase().includes(word));
  const begun = ([from]) => from === null || from < day + 1;
  const holds = (time) => begun(time) && (time[1] === null || time[1] > day);
  const found = new Set();
  document.getElementById("day").textContent = new Date(day * 864e5).toISOString().slice(0, 10);
  for (const { source, target, title, times, group } of links) {
    const isThere = times.some(begun) && has([title, nodes[source].name, nodes[target].name].join(" "));
    if (isThere) found.add(source).add(target);
    group.classList.toggle("faint", !isThere);
    group.classList.toggle("once", !times.some(holds));
  }
  nodes.forEach((node, i) => node.group.classList.toggle("faint", !found.has(i) && !(words.length && has(node.title))));
  for (const row of rows) {
    row.hidden = !(begun(span(row)) && has(row.textContent));
    row.className = holds(span(row)) ? "now" : "once";
  }
}
find.addEventListener("input", show);
when.addEventListener("input", show);

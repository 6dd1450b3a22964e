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

for (const { source, target, holds, words, title } of links) {
  const a = nodes[source], b = nodes[target], x = b.x - a.x, y = b.y - a.y, length = Math.hypot(x, y) || 1;
  const gap = (RADIUS + 3) / length;
  const group = add(svg, "g", { class: holds ? "link" : "link once" });
  add(group, "title", {}, title);
  add(group, "line", { x1: a.x + gap * x, y1: a.y + gap * y, x2: b.x - gap * x, y2: b.y - gap * y });
  add(group, "text", { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 - 4 }, words);
}
for (const { x, y, name, kind, title, centre } of nodes) {
  const group = add(svg, "g", { class: "entity k" + kind + (centre ? " centre" : "") });
  add(group, "title", {}, title);
  add(group, "circle", { cx: x, cy: y, r: centre ? RADIUS + 4 : RADIUS });
  add(group, "text", { x: x, y: y - RADIUS - 8 }, name.length > 30 ? name.slice(0, 29) + "…" : name);
}
const xs = nodes.map((node) => node.x), ys = nodes.map((node) => node.y);
const left = Math.min(...xs) - ROOM, top_ = Math.min(...ys) - ROOM / 2;
if (nodes.length) {
  svg.setAttribute("viewBox", [left, top_, Math.max(...xs) + ROOM - left, Math.max(...ys) + ROOM / 2 - top_].join(" "));
} else {
  svg.remove();
}

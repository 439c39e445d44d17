// Drawing on the canvas, and what the mouse, the keys and the buttons do.
const canvas = document.getElementById("view"), pen = canvas.getContext("2d");
const tip = document.getElementById("tip"), details = document.getElementById("details"), status = document.getElementById("status");
let V, L, parentsOf, childrenAt, grid;
let zoom = 1, panX = 0, panY = 0, chosen = -1, hovered = -1, pending = false, matches = [], matchAt = -1, lastMs = 0;

function rebuild() {
  const before = performance.now();
  V = visibleGraph();
  L = layoutOf(V);
  parentsOf = grouped(V.dst, V.elements.length);
  childrenAt = grouped(V.src, V.elements.length);
  grid = new Map(); // boxes by grid cell, so that hit tests and drawing look only at what is near
  V.elements.forEach((_, v) => {
    const key = Math.floor(L.x[v] / 600) + ":" + Math.floor(L.y[v] / 600);
    if (!grid.has(key)) grid.set(key, []);
    grid.get(key).push(v);
  });
  lastMs = performance.now() - before;
  status.textContent = `${V.elements.length.toLocaleString("en")} boxes, ${V.src.length.toLocaleString("en")} edges, for ${N.toLocaleString("en")} nodes`;
  redraw();
}

function boxesIn(x0, y0, x1, y1) {
  const found = [];
  for (let gx = Math.floor((x0 - BOX_W) / 600); gx <= Math.floor((x1 + BOX_W) / 600); gx++)
    for (let gy = Math.floor((y0 - BOX_H) / 600); gy <= Math.floor((y1 + BOX_H) / 600); gy++)
      for (const v of grid.get(gx + ":" + gy) || []) found.push(v);
  return found;
}
function boxAt(px, py) {
  const x = (px - panX) / zoom, y = (py - panY) / zoom;
  return boxesIn(x, y, x, y).find((v) => Math.abs(L.x[v] - x) <= BOX_W / 2 && Math.abs(L.y[v] - y) <= BOX_H / 2) ?? -1;
}

// ---------------------------------------------------------------------------------------------- drawing

function redraw() { if (!pending) { pending = true; requestAnimationFrame(paint); } }

function traceEdge(k) {
  const a = V.src[k], b = V.dst[k], shift = V.kind[k] === 1 ? 5 : -3;
  const x0 = L.x[a] + BOX_W / 2, y0 = L.y[a] + shift, x1 = L.x[b] - BOX_W / 2, y1 = L.y[b] + shift;
  // an edge back to the left leads to a band further down: it stays clear of the lanes' names
  const reach = x1 < x0 ? 14 : Math.max(14, Math.min((x1 - x0) * 0.4, 220));
  const lift = Math.abs(L.y[a] - L.y[b]) < 2 && x1 - x0 > BOX_W ? BOX_H * 1.15 * (V.kind[k] === 1 ? 1 : -1) : 0;
  pen.moveTo(x0, y0);
  if (zoom < 0.08) pen.lineTo(x1, y1);
  else pen.bezierCurveTo(x0 + reach, y0 + lift, x1 - reach, y1 + lift, x1, y1);
  if (zoom > 0.25) { pen.moveTo(x1 - 6, y1 - 3); pen.lineTo(x1, y1); pen.lineTo(x1 - 6, y1 + 3); }
}
// Colours of the page's style; a dark screen has others than a bright one, and paper is bright.
const darkScreen = matchMedia("screen and (prefers-color-scheme: dark)");
let printing = false;
const dark = () => darkScreen.matches && !printing;
const colour = (name) => (printing ? PAPER[name] : getComputedStyle(document.documentElement).getPropertyValue("--" + name));
const PAPER = { ink: "#111", paper: "#fff", rule: "#bbb", mark: "#000" };
const edgeColour = (style) => (dark() ? style.onDark : style.stroke);

function strokeEdges(edges, width, alpha) {
  for (let kind = 0; kind < G.edgeStyles.length; kind++) {
    pen.beginPath();
    for (const k of edges) if (V.kind[k] === kind) traceEdge(k);
    pen.strokeStyle = edgeColour(G.edgeStyles[kind]);
    pen.setLineDash(edges.length > 20000 ? [] : G.edgeStyles[kind].dash);
    pen.lineWidth = width; pen.globalAlpha = alpha; pen.stroke();
  }
  pen.globalAlpha = 1; pen.setLineDash([]);
}
function outline(style, x, y) {
  style.outline.forEach(([px, py], i) => { pen[i ? "lineTo" : "moveTo"](x + (px - 0.5) * BOX_W, y + (py - 0.5) * BOX_H); });
  pen.closePath();
}
// Width of a kind's shape at a height above or below its middle, as a share of the box.
const chords = new Map();
function chord(kind, dy) {
  const key = kind + ":" + dy;
  if (!chords.has(key)) {
    const y = 0.5 + dy / BOX_H, points = G.kindStyles[kind].outline, xs = [];
    points.forEach(([ax, ay], i) => {
      const [bx, by] = points[(i + 1) % points.length];
      if (ay <= y !== by <= y) xs.push(ax + (bx - ax) * (y - ay) / (by - ay));
    });
    chords.set(key, xs.length > 1 ? Math.max(...xs) - Math.min(...xs) : 0);
  }
  return chords.get(key);
}
// The text, shortened in its middle until it fits a width at the pen's font.
const fitted = new Map(); // emptied when zooming has filled it with sizes
function fitText(text, room) {
  const key = pen.font + room + ":" + text;
  if (!fitted.has(key)) {
    let limit = Math.min([...text].length, 60);
    while (limit > 3 && pen.measureText(cut(text, limit)).width > room) limit--;
    if (fitted.size > 50000) fitted.clear();
    fitted.set(key, cut(text, limit));
  }
  return fitted.get(key);
}
function cut(text, limit) {
  const chars = [...text];
  return chars.length <= limit ? text : chars.slice(0, limit >> 1).join("") + "…" + chars.slice(chars.length - (limit - (limit >> 1) - 1)).join("");
}

function edgesOf(v) {
  const list = [];
  for (let k = parentsOf.offsets[v]; k < parentsOf.offsets[v + 1]; k++) list.push(parentsOf.edges[k]);
  for (let k = childrenAt.offsets[v]; k < childrenAt.offsets[v + 1]; k++) list.push(childrenAt.edges[k]);
  return list;
}

function paint() {
  pending = false;
  const ratio = window.devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight;
  if (canvas.width !== w * ratio || canvas.height !== h * ratio) { canvas.width = w * ratio; canvas.height = h * ratio; }
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.fillStyle = colour("paper"); pen.fillRect(0, 0, w, h);
  pen.setTransform(ratio * zoom, 0, 0, ratio * zoom, ratio * panX, ratio * panY);
  const x0 = -panX / zoom, y0 = -panY / zoom, x1 = (w - panX) / zoom, y1 = (h - panY) / zoom;
  pen.strokeStyle = colour("rule"); pen.lineWidth = 0.7;
  pen.beginPath();
  L.bandTops.forEach((top, i) => { if (i) { pen.moveTo(0, top - 22); pen.lineTo(L.width, top - 22); } });
  pen.stroke();
  if (document.getElementById("all-edges").checked) {
    const near = [], far = [], implied = document.getElementById("implied-edges").checked;
    for (let k = 0; k < V.src.length; k++) {
      const a = V.src[k], b = V.dst[k];
      if (V.implied[k] && !implied) continue;
      if (Math.max(L.x[a], L.x[b]) + BOX_W > x0 && Math.min(L.x[a], L.x[b]) - BOX_W < x1 &&
          Math.max(L.y[a], L.y[b]) + 60 > y0 && Math.min(L.y[a], L.y[b]) - 60 < y1) (L.band[a] === L.band[b] ? near : far).push(k);
    }
    // lines from band to band cross everything between: they are faint, but for those of the chosen box
    strokeEdges(far, 0.6, far.length > 600 ? 0.08 : 0.25);
    const alpha = near.length > 4000 ? 0.12 : near.length > 600 ? 0.35 : 0.9;
    strokeEdges(near, near.length > 600 ? 0.6 : 0.9, alpha);
  }
  const boxes = boxesIn(x0, y0, x1, y1), byKind = new Map();
  for (const v of boxes) {
    const kind = kindOf[V.elements[v]];
    if (!byKind.has(kind)) byKind.set(kind, []);
    byKind.get(kind).push(v);
  }
  for (const [kind, list] of byKind) {
    const style = G.kindStyles[kind];
    pen.fillStyle = style.fill; pen.strokeStyle = style.stroke; pen.lineWidth = Math.max(1, 0.4 / zoom);
    pen.setLineDash(style.dashed ? [3, 2] : []);
    if (zoom < 0.12) {
      pen.fillStyle = style.stroke;
      for (const v of list) pen.fillRect(L.x[v] - BOX_W / 2, L.y[v] - BOX_H / 2, BOX_W, BOX_H);
      continue;
    }
    pen.beginPath();
    for (const v of list) if (V.elements[v] >= N || members[V.elements[v]] > 1) outline(style, L.x[v] + 3, L.y[v] + 3);
    pen.fill(); pen.stroke(); pen.beginPath();
    for (const v of list) outline(style, L.x[v], L.y[v]);
    pen.fill(); pen.stroke();
  }
  pen.setLineDash([]);
  for (const v of [hovered, chosen]) if (v >= 0) {
    strokeEdges(edgesOf(v), 2, 1);
    pen.strokeStyle = colour("mark"); pen.lineWidth = 3 / Math.min(zoom, 1);
    pen.beginPath(); outline(G.kindStyles[kindOf[V.elements[v]]], L.x[v], L.y[v]); pen.stroke();
  }
  pen.fillStyle = "#111"; pen.textAlign = "center";
  if (zoom > 0.45) {
    pen.font = "8px Helvetica, Arial, sans-serif";
    for (const v of boxes) {
      const lines = labelOf(V.elements[v]), kind = kindOf[V.elements[v]];
      if (lines.length < 3 && pen.measureText(lines[0]).width > chord(kind, 0) * BOX_W - 6) lines.splice(0, 1, ...halves(lines[0]));
      lines.forEach((line, i) => {
        const dy = 10.5 * (i - (lines.length - 1) / 2);
        pen.fillText(fitText(line, chord(kind, dy) * BOX_W - 6), L.x[v], L.y[v] + 3 + dy);
      });
    }
  }
  if (zoom > 0.12) {
    // names keep a readable size when the picture shrinks, are cut to the margin, and cover the edges below them
    const bold = (size) => { pen.font = `bold ${size}px Helvetica, Arial, sans-serif`; };
    const names = G.laneNames.map((name) => cut(name, 26)), room = MARGIN - 10;
    bold(8);
    const widest = Math.max(...names.map((name) => pen.measureText(name).width), 1);
    const scale = Math.min(zoom, 1), size = Math.min(Math.max(8 * room / widest, 7 / scale), 8 / scale, 22);
    pen.textAlign = "left"; bold(size);
    for (let at = 0; at < L.tops.length; at++) if (L.used[at]) {
      const name = fitText(names[at % L.lanes], room), y = L.tops[at] + 26;
      pen.fillStyle = colour("paper"); pen.fillRect(4, y - size, pen.measureText(name).width + 4, size * 1.3);
      pen.fillStyle = colour("ink"); pen.fillText(name, 6, y);
    }
  }
}

// ---------------------------------------------------------------------------------------------- moving about

function fit() {
  const w = canvas.clientWidth, h = canvas.clientHeight;
  zoom = Math.min(w / (L.width + 20), h / (L.height + 20), 1.6);
  panX = (w - L.width * zoom) / 2; panY = Math.max((h - L.height * zoom) / 2, 8);
  redraw();
}
// All of it where its texts can be read then; else its beginning, at the size of text.
const READABLE = 1.1;
function begin() {
  fit();
  if (zoom < READABLE) { zoom = READABLE; panX = 0; panY = 8; redraw(); }
}
function zoomBy(factor, px = canvas.clientWidth / 2, py = canvas.clientHeight / 2) {
  const next = Math.min(Math.max(zoom * factor, 0.002), 8);
  panX = px - (px - panX) * (next / zoom); panY = py - (py - panY) * (next / zoom); zoom = next;
  redraw();
}
function centre(v) {
  zoom = Math.max(zoom, 0.9);
  panX = canvas.clientWidth / 2 - L.x[v] * zoom; panY = canvas.clientHeight / 2 - L.y[v] * zoom;
}

// Change which groups are open and keep the picture still around one element.
function change(action, anchor = -1) {
  const v = anchor >= 0 ? V.number[anchor] : -1, was = v >= 0 ? [L.x[v] * zoom + panX, L.y[v] * zoom + panY] : null;
  const kept = chosen >= 0 ? V.elements[chosen] : -1;
  action();
  hovered = chosen = -1;
  rebuild();
  if (kept >= 0) chosen = V.number[V.shown[kept]];
  if (was) {
    const now = V.number[V.shown[anchor]] >= 0 ? V.number[V.shown[anchor]] : V.number[firstVisible(anchor)];
    if (now >= 0) { panX = was[0] - L.x[now] * zoom; panY = was[1] - L.y[now] * zoom; }
  }
  redraw();
}
function firstVisible(e) {
  while (V.number[e] < 0 && e >= N) e = childrenOf[e - N][0];
  return e;
}
function toggle(e) {
  if (e >= N) change(() => { opened[e - N] = 1; }, e);
  else if (G.parent[e] >= 0) change(() => { opened[G.parent[e] - N] = 0; }, e);
}
function reveal(e) {
  change(() => { for (let up = G.parent[e]; up >= 0; up = G.parent[up]) opened[up - N] = 1; });
  chosen = V.number[e];
  centre(chosen); describe(); redraw();
}

// ---------------------------------------------------------------------------------------------- details and search

function tooltipOf(e) {
  const lines = [nameOf(e), (e < N ? "id " + G.ids[e] + ", " : "") + G.kindStyles[kindOf[e]].legend + ", " + G.laneNames[laneOf[e]]];
  return lines.concat(labelOf(e).slice(1)).join("\n");
}
function element(tag, text) { const made = document.createElement(tag); made.textContent = text; return made; }
function describe() {
  details.replaceChildren();
  if (chosen < 0) return;
  const e = V.elements[chosen], list = document.createElement("dl");
  details.append(element("h2", nameOf(e)), list);
  const fact = (word, value) => { list.append(element("dt", word), element("dd", value)); };
  if (e < N) fact("id", G.ids[e]);
  fact("kind", G.kindStyles[kindOf[e]].legend);
  fact("row", G.laneNames[laneOf[e]]);
  if (e < N && G.noteTable[G.notes[e]]) fact("what", G.noteTable[G.notes[e]]);
  if (members[e] > 1) fact("nodes", members[e].toLocaleString("en"));
  if (time[e] > 0) fact(members[e] > 1 ? "time in all" : "duration", `${timeText(time[e])} (${time[e].toLocaleString("en")} ns)`);
  if (bytes[e] >= 0) fact("bytes", `${bytesText(bytes[e])} (${bytes[e].toLocaleString("en")} B)`);
  if (e >= N || G.parent[e] >= 0) {
    const button = element("button", e >= N ? "Expand this group" : "Collapse its group");
    button.addEventListener("click", () => toggle(e));
    details.append(button);
  }
  for (const [word, table, end] of [["Waits for", parentsOf, V.src], ["Needed by", childrenAt, V.dst]]) {
    const from = table.offsets[chosen], to = table.offsets[chosen + 1];
    if (from === to) continue;
    const items = document.createElement("ul");
    for (let k = from; k < Math.min(to, from + 200); k++) {
      const edge = table.edges[k], other = V.elements[end[edge]], item = document.createElement("li"), link = element("button", nameOf(other));
      link.className = "link";
      link.addEventListener("click", () => { chosen = end[edge]; centre(chosen); describe(); redraw(); });
      item.append(link, ` (${G.edgeStyles[V.kind[edge]].word}${V.weight[edge] > 1 ? " × " + V.weight[edge] : ""})`);
      items.append(item);
    }
    details.append(element("h2", `${word} ${to - from}`), items);
  }
}
function search(query) {
  const wanted = query.trim().toLowerCase();
  matches = [];
  if (wanted) {
    const hit = G.nameTable.map((name) => name.toLowerCase().includes(wanted));
    for (let e = 0; e < N; e++) if (hit[G.names[e]] || String(G.ids[e]) === wanted) matches.push(e);
  }
  matchAt = -1;
  return matches.length;
}
function nextMatch() {
  if (!matches.length) { status.textContent = "no match"; return; }
  matchAt = (matchAt + 1) % matches.length;
  reveal(matches[matchAt]);
  status.textContent = `match ${matchAt + 1} of ${matches.length.toLocaleString("en")}`;
}

// ---------------------------------------------------------------------------------------------- events

let drag = null, lastQuery = "";
canvas.addEventListener("pointerdown", (event) => {
  drag = { x: event.offsetX, y: event.offsetY, moved: false };
  canvas.setPointerCapture(event.pointerId); canvas.classList.add("dragging");
});
canvas.addEventListener("pointermove", (event) => {
  if (drag) {
    const dx = event.offsetX - drag.x, dy = event.offsetY - drag.y;
    if (drag.moved || Math.abs(dx) + Math.abs(dy) > 3) {
      panX += dx; panY += dy; drag = { x: event.offsetX, y: event.offsetY, moved: true }; tip.hidden = true; redraw();
    }
    return;
  }
  const v = boxAt(event.offsetX, event.offsetY);
  if (v !== hovered) { hovered = v; redraw(); }
  tip.hidden = v < 0;
  if (v >= 0) {
    tip.textContent = tooltipOf(V.elements[v]);
    tip.style.left = Math.min(event.offsetX + 14, canvas.clientWidth - 240) + "px"; tip.style.top = event.offsetY + 14 + "px";
  }
});
canvas.addEventListener("pointerup", (event) => {
  canvas.classList.remove("dragging");
  if (drag && !drag.moved) { chosen = boxAt(event.offsetX, event.offsetY); describe(); redraw(); }
  drag = null;
});
canvas.addEventListener("pointerleave", () => { hovered = -1; tip.hidden = true; redraw(); });
canvas.addEventListener("dblclick", (event) => { const v = boxAt(event.offsetX, event.offsetY); if (v >= 0) { toggle(V.elements[v]); describe(); } });
canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoomBy(Math.exp(-event.deltaY * 0.0015), event.offsetX, event.offsetY); }, { passive: false });
canvas.addEventListener("keydown", (event) => {
  const move = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
  if (move) { panX += move[0]; panY += move[1]; redraw(); }
  else if (event.key === "+" || event.key === "=") zoomBy(1.25);
  else if (event.key === "-") zoomBy(0.8);
  else if (event.key === "0") fit();
  else if (event.key === "Enter" && chosen >= 0) toggle(V.elements[chosen]);
  else return;
  event.preventDefault();
});
document.getElementById("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const query = document.getElementById("query").value;
  if (query !== lastQuery) { lastQuery = query; search(query); }
  nextMatch();
});
function openAll() { change(() => opened.fill(1)); fit(); }
function closeAll() { change(() => opened.fill(0)); fit(); }
document.getElementById("open-all").addEventListener("click", openAll);
document.getElementById("close-all").addEventListener("click", closeAll);
document.getElementById("fit").addEventListener("click", fit);
document.getElementById("zoom-in").addEventListener("click", () => zoomBy(1.25));
document.getElementById("zoom-out").addEventListener("click", () => zoomBy(0.8));
for (const box of ["all-edges", "implied-edges"]) document.getElementById(box).addEventListener("change", redraw);
window.addEventListener("resize", redraw);
darkScreen.addEventListener("change", () => { legend(); redraw(); });
for (const [name, now] of [["beforeprint", true], ["afterprint", false]])
  window.addEventListener(name, () => { printing = now; legend(); paint(); });

function legend() {
  const box = document.getElementById("legend");
  box.replaceChildren();
  const picture = (body) => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("width", 24); svg.setAttribute("height", 12); svg.setAttribute("aria-hidden", "true");
    svg.append(body);
    return svg;
  };
  const draw = (tag, attributes, word) => {
    const shape = document.createElementNS("http://www.w3.org/2000/svg", tag), item = document.createElement("span");
    for (const [key, value] of Object.entries(attributes)) shape.setAttribute(key, value);
    item.append(picture(shape), word);
    box.append(item);
  };
  for (const kind of [...new Set(G.kinds)]) {
    const s = G.kindStyles[kind];
    draw("polygon", { points: s.outline.map(([x, y]) => `${1 + x * 22},${1 + y * 10}`).join(" "), fill: s.fill, stroke: s.stroke, "stroke-dasharray": s.dashed ? "3 2" : "none" }, s.legend);
  }
  for (const kind of [...new Set(G.edgeKinds)]) {
    const s = G.edgeStyles[kind];
    draw("path", { d: "M0,6H24", fill: "none", stroke: edgeColour(s), "stroke-width": 1.6, "stroke-dasharray": s.dash.join(" ") || "none" }, s.legend);
  }
  if (T > N) box.append(element("span", "a stacked box is a folded group: double-click to expand"));
}

// Open groups, those with most in them first, while the picture stays small. Copies of one stretch, which differ in
// their numbers only, say no more than the box that they are folded into.
{
  const copies = (e) => childrenOf[e - N].filter((c) => c >= N && / \(\d+ of \d+\)$/.test(nameOf(c))).length;
  const waiting = [];
  let shownBoxes = 0;
  for (let e = 0; e < T; e++) if (G.parent[e] < 0) { shownBoxes++; if (e >= N) waiting.push(e); }
  while (waiting.length) {
    const largest = waiting.reduce((at, e, k) => (members[e] > members[waiting[at]] ? k : at), 0);
    const [group] = waiting.splice(largest, 1), inside = childrenOf[group - N];
    if (shownBoxes + inside.length - 1 > 40 || copies(group) > 3) continue;
    opened[group - N] = 1; shownBoxes += inside.length - 1;
    for (const e of inside) if (e >= N) waiting.push(e);
  }
}
legend();
rebuild();
begin();
// For scripts and tests: what is shown and the same actions as the buttons.
window.chakra = {
  nodes: N, groups: T - N, openAll, closeAll, search, nextMatch, reveal, toggle, fit, zoomBy,
  boxes: () => V.elements.length, edges: () => V.src.length, layoutMs: () => lastMs, zoom: () => zoom,
  chosen: () => (chosen < 0 ? null : nameOf(V.elements[chosen])), place: (e) => { const v = V.number[e]; return v < 0 ? null : [L.x[v] * zoom + panX, L.y[v] * zoom + panY]; },
  paint: () => { const before = performance.now(); paint(); return performance.now() - before; },
};

"use strict";
// The graph, its fold tree and the layered layout. Elements are numbered: nodes 0..n-1, then groups n..n+g-1.
const G = JSON.parse(document.getElementById("data").textContent);
const N = G.kinds.length, T = G.parent.length;
const opened = new Uint8Array(T - N);
const childrenOf = Array.from({ length: T - N }, () => []);
for (let e = 0; e < T; e++) if (G.parent[e] >= 0) childrenOf[G.parent[e] - N].push(e);

// What a group stands for: its members' number, time, bytes, and the kind and lane that most of them have.
const members = new Float64Array(T), time = new Float64Array(T), bytes = new Float64Array(T);
const kindOf = new Uint8Array(T), laneOf = new Int32Array(T);
{
  const kindVotes = new Map(), laneVotes = new Map();
  const vote = (votes, at, value, weight) => {
    if (!votes.has(at)) votes.set(at, new Map());
    const box = votes.get(at);
    box.set(value, (box.get(value) || 0) + weight);
  };
  const winner = (box) => [...box].reduce((a, b) => (b[1] > a[1] ? b : a))[0];
  bytes.fill(-1);
  for (let e = 0; e < T; e++) {
    if (e < N) {
      members[e] = G.members[e]; time[e] = G.duration[e]; bytes[e] = G.bytes[e];
      kindOf[e] = G.kinds[e]; laneOf[e] = G.lanes[e];
    } else {
      kindOf[e] = winner(kindVotes.get(e)); laneOf[e] = winner(laneVotes.get(e));
    }
    const up = G.parent[e];
    if (up >= 0) {
      members[up] += members[e]; time[up] += time[e];
      if (bytes[e] >= 0) bytes[up] = Math.max(bytes[up], 0) + bytes[e];
      vote(kindVotes, up, kindOf[e], members[e]); vote(laneVotes, up, laneOf[e], members[e]);
    }
  }
}

function nameOf(e) {
  const text = e < N ? G.nameTable[G.names[e]] : G.labels[e - N];
  return text || (e < N ? "id " + G.ids[e] : "(group)");
}
function short(value) { return value >= 10000 ? value.toFixed(0) : String(+value.toPrecision(4)); }
function timeText(ns) {
  for (const [factor, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) if (ns >= factor) return short(ns / factor) + " " + unit;
  return ns + " ns";
}
function bytesText(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (count >= 1024 && at < units.length - 1) { count /= 1024; at++; }
  return short(count) + " " + units[at];
}
function countOf(e) { return members[e] > 1 ? members[e].toLocaleString("en") + " nodes" : ""; }
function costOf(e) {
  const parts = [];
  if (e < N && G.noteTable[G.notes[e]]) parts.push(G.noteTable[G.notes[e]]);
  if (bytes[e] >= 0) parts.push(bytesText(bytes[e]));
  if (time[e] > 0) parts.push(timeText(time[e]));
  return parts.join(", ");
}
// The name in a box: without the type that it begins with, which the shape says.
function shortNameOf(e) {
  const name = nameOf(e), prefix = G.kindStyles[kindOf[e]].prefix;
  return prefix && name.startsWith(prefix) && name.length > prefix.length ? name.slice(prefix.length) : name;
}
// A name in two lines, broken behind the sign between its words that is nearest to its middle; in one if it has none.
function halves(name) {
  const breaks = [...name.matchAll(/[_.:/ -]+/g)].map((found) => found.index + found[0].length).filter((at) => at < name.length);
  if (!breaks.length) return [name];
  const at = breaks.reduce((a, b) => (Math.abs(2 * b - name.length) < Math.abs(2 * a - name.length) ? b : a));
  return [name.slice(0, at), name.slice(at)];
}
function labelOf(e) { return [shortNameOf(e), countOf(e), costOf(e)].filter((line) => line); }

// ---------------------------------------------------------------------------------------------- what is visible

function shownAs() {
  const shown = new Int32Array(T);
  for (let e = T - 1; e >= 0; e--) {
    const up = G.parent[e];
    shown[e] = up < 0 || (shown[up] === up && opened[up - N]) ? e : shown[up];
  }
  return shown;
}

// The visible graph: elements in order, and edges with how many edges of the trace each stands for.
function visibleGraph() {
  const shown = shownAs(), seen = new Uint8Array(T), elements = [], number = new Int32Array(T).fill(-1);
  for (let e = 0; e < N; e++) {
    const s = shown[e];
    if (!seen[s]) { seen[s] = 1; number[s] = elements.length; elements.push(s); }
  }
  const count = elements.length, index = new Map(), src = [], dst = [], kind = [], weight = [];
  for (let k = 0; k < G.src.length; k++) {
    const a = number[shown[G.src[k]]], b = number[shown[G.dst[k]]];
    if (a === b) continue;
    const key = (a * count + b) * 3 + G.edgeKinds[k], at = index.get(key);
    if (at === undefined) {
      index.set(key, src.length); src.push(a); dst.push(b); kind.push(G.edgeKinds[k]); weight.push(G.edgeCounts[k]);
    } else weight[at] += G.edgeCounts[k];
  }
  return { elements, number, shown, src: Int32Array.from(src), dst: Int32Array.from(dst), kind, weight };
}

function grouped(owner, count) {
  const offsets = new Int32Array(count + 1);
  for (const o of owner) offsets[o + 1]++;
  for (let i = 0; i < count; i++) offsets[i + 1] += offsets[i];
  const at = offsets.slice(0, count), edges = new Int32Array(owner.length);
  for (let k = 0; k < owner.length; k++) edges[at[owner[k]]++] = k;
  return { offsets, edges };
}

// ---------------------------------------------------------------------------------------------- layout

const BOX_W = 118, BOX_H = 34, CELL_W = 150, CELL_H = 46, MARGIN = 130, BAND_GAP = 40, LANE_GAP = 8, STACK = 16;

function levelsOf(V) {
  const n = V.elements.length, out = grouped(V.src, n), waiting = new Int32Array(n), level = new Int32Array(n);
  for (const d of V.dst) waiting[d]++;
  const placed = new Uint8Array(n), queue = new Int32Array(n);
  let tail = 0, lowest = 0;
  for (let v = 0; v < n; v++) if (!waiting[v]) { queue[tail++] = v; placed[v] = 1; }
  for (let head = 0; head < n; head++) {
    if (head === tail) { // a cycle: cut it at its lowest node
      while (placed[lowest]) lowest++;
      queue[tail++] = lowest; placed[lowest] = 1;
    }
    const v = queue[head];
    for (let k = out.offsets[v]; k < out.offsets[v + 1]; k++) {
      const child = V.dst[out.edges[k]];
      if (placed[child]) continue;
      level[child] = Math.max(level[child], level[v] + 1);
      if (--waiting[child] === 0) { queue[tail++] = child; placed[child] = 1; }
    }
  }
  return level;
}

// Marks edges that a longer path already implies (one bit a box; only for pictures small enough to be read).
function impliedEdges(V, level) {
  const n = V.elements.length, implied = new Uint8Array(V.src.length);
  if (n > 2000) return implied;
  const words = (n + 31) >> 5, reach = new Uint32Array(n * words), into = grouped(V.dst, n);
  const order = [...Array(n).keys()].sort((a, b) => level[a] - level[b]);
  for (const v of order) {
    const edges = [...into.edges.subarray(into.offsets[v], into.offsets[v + 1])].filter((k) => level[V.src[k]] < level[v]);
    edges.sort((a, b) => level[V.src[b]] - level[V.src[a]] || V.src[a] - V.src[b]);
    let last = -1, lastImplied = 0;
    for (const k of edges) {
      const p = V.src[k];
      implied[k] = p === last ? lastImplied : (reach[v * words + (p >> 5)] >>> (p & 31)) & 1;
      last = p; lastImplied = implied[k];
      for (let w = 0; w < words; w++) reach[v * words + w] |= reach[p * words + w];
      reach[v * words + (p >> 5)] |= 1 << (p & 31);
    }
  }
  return implied;
}

function layoutOf(V) {
  const n = V.elements.length, level = levelsOf(V), lanes = G.laneNames.length;
  const lane = Int32Array.from(V.elements, (e) => laneOf[e]);
  const cells = new Map();
  for (let v = 0; v < n; v++) {
    const key = level[v] * lanes + lane[v];
    if (!cells.has(key)) cells.set(key, []);
    cells.get(key).push(v);
  }
  const slot = new Float64Array(n);
  for (const cell of cells.values()) cell.forEach((v, i) => { slot[v] = i; });
  const pull = new Float64Array(n), degree = new Int32Array(n);
  for (let sweep = 0; sweep < 2; sweep++) {
    pull.fill(0); degree.fill(0);
    for (let k = 0; k < V.src.length; k++) {
      const [to, from] = sweep === 0 ? [V.dst[k], V.src[k]] : [V.src[k], V.dst[k]];
      pull[to] += lane[from] * 1e4 + slot[from]; degree[to]++;
    }
    const key = (v) => (degree[v] ? pull[v] / degree[v] : lane[v] * 1e4 + slot[v]);
    for (const cell of cells.values()) if (cell.length > 1) cell.sort((a, b) => key(a) - key(b) || a - b);
    for (const cell of cells.values()) cell.forEach((v, i) => { slot[v] = i; });
  }
  let deepest = 0;
  for (let v = 0; v < n; v++) deepest = Math.max(deepest, level[v] + 1);
  const wide = new Int32Array(deepest + 1);
  for (let v = 0; v < n; v++) wide[level[v] + 1] = Math.max(wide[level[v] + 1], Math.floor(slot[v] / STACK) + 1);
  for (let i = 0; i < deepest; i++) wide[i + 1] += wide[i];
  const columns = wide[deepest], depth = new Int32Array(lanes);
  for (let v = 0; v < n; v++) depth[lane[v]] = Math.max(depth[lane[v]], (slot[v] % STACK) + 1);
  const tall = depth.reduce((a, d) => a + d * CELL_H + LANE_GAP, BAND_GAP), width = columns * CELL_W;
  let perBand = Math.max(columns, 1);
  if (width >= 4.5 * tall && columns > 12) perBand = Math.max(8, Math.ceil(columns / Math.max(1, Math.round(Math.sqrt(width / (1.5 * tall))))));
  const bands = Math.max(1, Math.ceil(columns / perBand)), used = new Int32Array(bands * lanes);
  const band = new Int32Array(n), x = new Float64Array(n), y = new Float64Array(n);
  for (let v = 0; v < n; v++) {
    const column = wide[level[v]] + Math.floor(slot[v] / STACK);
    band[v] = Math.floor(column / perBand);
    x[v] = MARGIN + ((column % perBand) + 0.5) * CELL_W;
    const at = band[v] * lanes + lane[v];
    used[at] = Math.max(used[at], (slot[v] % STACK) + 1);
  }
  const tops = new Float64Array(bands * lanes), bandTops = [];
  let down = 0;
  for (let b = 0; b < bands; b++) {
    bandTops.push(down);
    for (let l = 0; l < lanes; l++) {
      tops[b * lanes + l] = down;
      if (used[b * lanes + l]) down += used[b * lanes + l] * CELL_H + LANE_GAP;
    }
    down += BAND_GAP;
  }
  for (let v = 0; v < n; v++) {
    const at = band[v] * lanes + lane[v], inCell = Math.min(cells.get(level[v] * lanes + lane[v]).length, STACK);
    y[v] = tops[at] + ((slot[v] % STACK) + (used[at] - inCell) / 2 + 0.5) * CELL_H;
  }
  V.implied = impliedEdges(V, level);
  return { x, y, band, bandTops, tops, used, lanes, width: MARGIN + perBand * CELL_W, height: down };
}

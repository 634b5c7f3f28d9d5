// The graph: dagre lays it out, from left to right where that fits, else from top to bottom. What closes a loop is drawn back, dashed.
const BOX = { least: 128, most: 236, padding: 11, line: 16 }
const SCALE_LEAST = 0.62  // a graph that fits only by being smaller than this scrolls inside its box instead
const pen = document.createElement("canvas").getContext("2d")

function fitting(text, width, font) {
  pen.font = font
  if (pen.measureText(text).width <= width) return text
  let length = text.length
  while (length > 1 && pen.measureText(`${text.slice(0, length)}…`).width > width) length -= 1
  return `${text.slice(0, length)}…`
}

function widthOf(text, font) {
  pen.font = font
  return pen.measureText(text).width
}

const NAME_FONT = "650 13px system-ui, sans-serif"
const SOFT_FONT = "11px system-ui, sans-serif"
const stepsOf = vertex => vertex.steps.map(step => step.startsWith("=> ") ? `→ ${step.slice(3)}` : step).join(", ")

// Below the title: the vertex' own name where the title is another one, and what is fused to it.
function belowOf(vertex) {
  const steps = vertex.steps[0] === vertex.title ? { steps: vertex.steps.slice(1) } : vertex
  return [vertex.title === vertex.name ? "" : vertex.name, stepsOf(steps)].filter(Boolean).join(": ")
}

function sizeOf(vertex) {
  const text = Math.max(widthOf(vertex.title, NAME_FONT), widthOf(belowOf(vertex), SOFT_FONT))
  const width = Math.min(BOX.most, Math.max(BOX.least, text + 2 * BOX.padding))
  return { width, height: 3 * BOX.padding + BOX.line * (belowOf(vertex) ? 3 : 2) }
}

function laidOut(vertices, edges, rankdir) {
  const graph = new dagre.graphlib.Graph({ multigraph: true })
  graph.setGraph({ rankdir, nodesep: 22, ranksep: rankdir === "LR" ? 46 : 34, edgesep: 14, marginx: 8, marginy: 8 })
  for (const vertex of vertices) graph.setNode(vertex.name, sizeOf(vertex))
  edges.forEach(([source, target, isBack], n) => {
    if (source === target) return
    const [from, to] = isBack ? [target, source] : [source, target]  // so that a loop does not turn the graph round
    graph.setEdge(from, to, { width: 0, height: 0 }, String(n))
  })
  dagre.layout(graph)
  return graph
}

let placed = { key: "" }

// The layout depends on what there is, not on figures: it stays as it is while they change.
function placeGraph(vertices, edges, room) {
  const key = JSON.stringify([vertices.map(v => [v.name, v.title, v.steps]), edges, room])
  if (placed.key !== key) {
    let graph = laidOut(vertices, edges, "LR")
    if (graph.graph().width > room) {
      const upright = laidOut(vertices, edges, "TB")
      if (upright.graph().width < graph.graph().width) graph = upright
    }
    placed = { key, graph }
  }
  return placed.graph
}

const BACK = 22  // how far a loop of one vertex goes out of its box

// From a vertex to itself: out of the side where no other edges are.
function loopOf({ x, y, width, height }, isUpright) {
  return isUpright
    ? `M${x + width / 2} ${y - 12}h${BACK - 8}q8 0 8 8v8q0 8 -8 8h${-(BACK - 8)}`
    : `M${x + 13} ${y + height / 2}v${BACK - 8}q0 8 -8 8h-10q-8 0 -8 -8v${-(BACK - 8)}`
}

function pathThrough(points) {
  const [first, ...rest] = points
  let path = `M${first.x.toFixed(1)} ${first.y.toFixed(1)}`
  rest.forEach((point, n) => {
    const next = rest[n + 1]
    if (!next) path += `L${point.x.toFixed(1)} ${point.y.toFixed(1)}`
    else if (n === rest.length - 2) path += `Q${point.x.toFixed(1)} ${point.y.toFixed(1)} ${next.x.toFixed(1)} ${next.y.toFixed(1)}`
    else path += `Q${point.x.toFixed(1)} ${point.y.toFixed(1)} ${((point.x + next.x) / 2).toFixed(1)} ${((point.y + next.y) / 2).toFixed(1)}`
  })
  return rest.length > 1 ? path.replace(/L[^L]*$/, "") : path
}

function drawGraph(place, vertices, edges) {
  const room = place.clientWidth
  if (!vertices.length || room < 50) return place.replaceChildren()
  const graph = placeGraph(vertices, edges, room)
  const isUpright = graph.graph().rankdir === "TB"
  const forLoops = edges.some(([source, target]) => source === target) ? BACK : 0
  const width = graph.graph().width + (isUpright ? forLoops : 0)
  const height = graph.graph().height + (isUpright ? 0 : forLoops)
  const scale = Math.max(SCALE_LEAST, Math.min(1, room / width))
  const svg = drawn("svg", {
    viewBox: `0 0 ${width} ${height}`, width: Math.floor(width * scale), height: Math.ceil(height * scale), role: "img",
    "aria-label": `Graph of ${vertices.length} vertices`,
  })
  const tip = drawn("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7.5, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto" })
  tip.append(drawn("path", { d: "M0 0L8 4L0 8z" }))
  svg.appendChild(drawn("defs", {})).append(tip)
  edges.forEach(([source, target, isBack], n) => {
    if (source === target) {
      svg.append(drawn("path", { d: loopOf(graph.node(source), isUpright), class: "edge loop", "marker-end": "url(#tip)" }))
      return
    }
    const { points } = isBack ? graph.edge(target, source, String(n)) : graph.edge(source, target, String(n))
    const path = pathThrough(isBack ? points.toReversed() : points)
    svg.append(drawn("path", { d: path, class: isBack ? "edge loop" : "edge", "marker-end": "url(#tip)" }))
  })
  for (const vertex of vertices) svg.append(boxOf(vertex, graph.node(vertex.name)))
  place.replaceChildren(svg)
}

function boxOf(vertex, { x, y, width, height }) {
  const [left, top] = [x - width / 2, y - height / 2]
  const group = drawn("g", {})
  const [below, steps] = [belowOf(vertex), stepsOf(vertex)]
  group.append(drawn("title", {}, [vertex.name, vertex.where && `made at ${vertex.where}`, steps && `then ${steps}`,
    vertex.read_by && `read by ${vertex.read_by}`].filter(Boolean).join("\n")))
  group.append(drawn("rect", { x: left, y: top, width, height, rx: 7, class: "box", fill: `var(--pressure-${vertex.level})` }))
  const room = width - 2 * BOX.padding
  const lines = [[fitting(vertex.title, room + 4, NAME_FONT), "name"], [`×${vertex.parallelism}  ${vertex.rate}`, ""]]
  if (below) lines.splice(1, 0, [fitting(below, room + 4, SOFT_FONT), "soft"])
  lines.forEach(([text, kind], n) => {
    group.append(drawn("text", { x, y: top + BOX.padding + BOX.line * (n + 0.75), "text-anchor": "middle", class: kind }, text))
  })
  const bar = { x: left + BOX.padding, y: top + height - BOX.padding - 4, width: room }
  group.append(drawn("rect", { x: bar.x, y: bar.y, width: bar.width, height: 5, rx: 2.5, fill: "var(--idle)" }))
  const [busy, , pressed] = vertex.shares
  group.append(drawn("rect", { x: bar.x, y: bar.y, width: bar.width * (busy ?? 0), height: 5, rx: 2.5, fill: "var(--busy)" }))
  const red = bar.width * (pressed ?? 0)
  group.append(drawn("rect", { x: bar.x + bar.width - red, y: bar.y, width: red, height: 5, rx: 2.5, fill: "var(--pressed)" }))
  return group
}

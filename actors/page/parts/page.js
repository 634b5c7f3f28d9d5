// The page: frames come from the server when something has changed; between two of them only clocks run.
const POINTS_MOST = 600
const FILTERS = ["all", "failures", "layout", "snapshots", "life"]
const PRESSURES = ["none", "up to 25 %", "up to 50 %", "up to 75 %", "more of its time"]
const OVER = ["complete", "failed", "cancelled"]

let frame = null
let points = []
let snapshots = []
let received = 0
let isConnected = false

const since = () => !frame || frame.is_over ? 0 : (performance.now() - received) / 1000
const nowOfJob = () => frame.at_s + since()
const jobName = () => frame?.name ?? ""
const verticesOfJob = () => frame?.vertices ?? []

function take(told) {
  frame = told
  received = performance.now()
  points = told.is_whole ? told.points : points.concat(told.points)
  if (points.length > POINTS_MOST) points = points.filter((_, n) => n % 2 === 0)
  document.title = `${told.name}: ${told.state} - Rayad`
  at("name").textContent = told.name
  at("state").textContent = told.state
  at("state").className = told.state
  at("notes").hidden = !told.lines.length
  at("notes").replaceChildren(...told.lines.map(line => made("p", line)))
  if (told.events) {
    snapshots = told.events.snapshots
    marks = told.events.lines.filter(line => ["failures", "layout"].includes(line.group) && line.kind !== "decision")
    showEvents(told.events)
  }
  if (may("steps")) at("steps").hidden = OVER.includes(told.state)
  showHeadline(told.headline)
  drawGraph(at("graph"), told.vertices, told.edges)
  showVertices(told)
  showNames()
  tick()
}

function tick() {
  const line = at("line")
  line.classList.toggle("lost", !isConnected && !frame?.is_over)
  line.classList.toggle("live", isConnected && !!frame && !frame.is_over)
  if (!frame) {
    line.textContent = isConnected ? "waiting for the first look at the job" : "no connection"
    return
  }
  const ago = Math.round(since())
  const changed = ago < 5 ? "live" : `nothing has changed for ${lasting(ago).join(" ")}`
  line.textContent = frame.is_over ? "the job has ended: this is how it was last seen" : isConnected ? changed : "connection lost; trying again"
  tickHeadline(frame.headline, since())
  at("why").hidden = !frame.why
  at("why").textContent = frame.why ? `No frontier has moved for ${lasting(frame.still_s + since()).join(" ")}. ${frame.why}` : ""
  for (const [n, vertex] of frame.vertices.entries()) {
    const cell = document.querySelector(`[data-lag="${n}"]`)
    if (cell && vertex.is_behind) cell.textContent = (vertex.lag_s + since()).toFixed(1)
  }
  showCharts(frame, points, snapshots, nowOfJob(), since())
}

function showNames() {
  at("names").replaceChildren(...frame.vertices.map((vertex, n) => {
    const button = made("button")
    button.appendChild(made("i")).style.background = `var(${colourOf(n)})`
    button.append(vertex.title)
    button.ariaPressed = !off.has(vertex.name)
    button.title = "show or hide it in all charts"
    button.addEventListener("click", () => {
      if (!off.delete(vertex.name)) off.add(vertex.name)
      showNames()
      tick()
    })
    return button
  }))
}

choices(at("scales"), SCALES, () => scale, name => { scale = name; if (frame) tick() })
choices(at("filters"), FILTERS, () => group, name => { group = name; filterEvents() })
at("pressures").append(...PRESSURES.map((text, level) => {
  const one = made("span")
  one.appendChild(made("i")).style.background = `var(--pressure-${level})`
  one.append(text)
  return one
}))
if (may("steps")) showSteps()

const stream = new EventSource(`events${location.search}`)
stream.addEventListener("open", () => { isConnected = true; tick() })
stream.addEventListener("error", () => { isConnected = false; tick() })
stream.addEventListener("message", event => {
  isConnected = true
  take(JSON.parse(event.data))
  if (frame.is_over) stream.close()
})
setInterval(tick, 1000)

function resized() {
  if (!frame) return
  drawGraph(at("graph"), frame.vertices, frame.edges)
  tick()
}
addEventListener("resize", resized)
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", resized)

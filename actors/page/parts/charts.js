// The lines over time, by uPlot. One pointer goes through all of them; its values stand beside it.
const CHARTS = [
  { title: "Records a second", figure: 0, unit: "/s", scales: true },
  { title: "Lag of the frontier", figure: 2, unit: "s", scales: true, runsOn: true },
  { title: "Epoch of the frontier", figure: 1, unit: "", exact: true },
  { title: "State kept", figure: 3, unit: "B", scales: true },
]
const OF_SNAPSHOTS = [
  { title: "Snapshots: size", place: 1, unit: "B" },
  { title: "Snapshots: time that they took", place: 2, unit: "s" },
]
const SCALES = ["automatic", "linear", "logarithmic", "each its own"]
const FLAT = 20  // a line whose highest value is so many times below that of another is no more than flat on a linear scale
const HEIGHT = 168
const off = new Set()  // names of vertices that are not drawn

let scale = "automatic"
let plots = []
let drawnAs = ""
let pointed = null  // the plot that the pointer is in

const exactly = value => value == null ? "-" : value.toLocaleString("en-GB")

// All points of one figure: times, and a list for each vertex.
function columnsOf(points, vertices, chart, now, sinceFrame) {
  const times = points.map(point => point[0])
  const columns = vertices.map(vertex => points.map(point => point[1][vertex.name]?.[chart.figure] ?? null))
  if (times.length && now > times.at(-1)) {
    times.push(now)
    columns.forEach((column, n) => {
      const last = column.at(-1)
      column.push(last !== null && chart.runsOn && vertices[n].is_behind ? last + sinceFrame : last)
    })
  }
  return [times, ...columns]
}

const highest = column => column.reduce((most, value) => value > most ? value : most, 0)

function scaleFor(columns, chart) {
  if (!chart.scales) return "linear"
  if (scale !== "automatic") return scale
  const tops = columns.slice(1).map(highest).filter(top => top > 0)
  return tops.length > 1 && Math.max(...tops) > FLAT * Math.min(...tops) ? "logarithmic" : "linear"
}

function plotOptions(chart, kind, vertices, width, format) {
  const line = () => css("--line")
  const soft = () => css("--soft")
  const font = "11px system-ui, sans-serif"
  const whole = (u, splits) => kind === "logarithmic" ? splits.map(split => split === 0 || Number.isInteger(Math.log10(split)) ? split : null) : splits
  const y = kind === "logarithmic" ? { distr: 4, asinh: 1, range: (u, low, high) => [0, Math.max(1, high * 1.2)] } : {
    range: (u, low, high) => chart.exact ? [low ?? 0, Math.max((low ?? 0) + 1, high ?? 1)] : [0, high > 0 ? high * 1.06 : 1],
  }
  return {
    width, height: HEIGHT, legend: { show: false }, padding: [8, 24, 0, 0],
    cursor: { sync: { key: chart.bars ? "snapshots" : "job" }, drag: { x: false, y: false }, y: false, points: { size: 7 } },
    scales: { x: { time: true }, y },
    axes: [
      { stroke: soft, font, grid: { show: false }, ticks: { stroke: line, size: 4 }, size: 26, space: 74,
        values: (u, splits, n, space, step) => splits.map(split => clock(split, step < 60)) },
      { stroke: soft, font, grid: { stroke: line, width: 1, filter: whole }, ticks: { show: false }, size: 50, space: 30,
        values: (u, splits) => splits.map(split => split == null || split < 0 ? "" : kind === "each its own" ? `${Math.round(100 * split)} %` : short(split)) },
    ],
    series: [{}, ...vertices.map((vertex, n) => ({
      label: vertex.title, show: !off.has(vertex.name), stroke: () => css(colourOf(n)), width: 1.7, dash: dashOf(n), points: { show: false },
      spanGaps: false, ...chart.bars ? { fill: () => css(colourOf(n)), paths: uPlot.paths.bars({ size: [0.8, 26] }), width: 0 } : {},
    }))],
    hooks: { draw: [chart.bars ? () => {} : drawMarks], setCursor: [u => showTip(u, format)] },
  }
}

// Failures, recoveries and changes of layout, as lines through the charts.
function drawMarks(u) {
  const { ctx, bbox } = u
  ctx.save()
  ctx.lineWidth = devicePixelRatio
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio])
  for (const { at_s, group } of marks) {
    if (at_s < u.scales.x.min || at_s > u.scales.x.max) continue
    const x = u.valToPos(at_s, "x", true)
    ctx.strokeStyle = css(group === "layout" ? "--layout" : "--failure")
    ctx.beginPath()
    ctx.moveTo(x, bbox.top)
    ctx.lineTo(x, bbox.top + bbox.height)
    ctx.stroke()
  }
  ctx.restore()
}

function showTip(u, format) {
  const { idx, left } = u.cursor
  const tip = u.tip
  if (!tip) return
  tip.hidden = u !== pointed || idx == null || left < 0
  if (tip.hidden) return
  const time = u.data[0][idx]
  const ago = Math.max(0, nowOfJob() - time)
  const rows = [made("b", `${clock(time)}, ${lasting(ago).join(" ")} ago`)]
  u.series.forEach((series, n) => {
    if (!n || !series.show) return
    const row = made("div")
    const name = row.appendChild(made("span"))
    name.appendChild(made("i")).style.background = `var(${colourOf(n - 1)})`
    name.append(series.label)
    row.append(made("strong", format(n - 1, idx)))
    rows.push(row)
  })
  tip.replaceChildren(...rows)
  const x = u.over.offsetLeft + left
  const edge = u.root.getBoundingClientRect().left  // it may lie over other charts, and not outside of the window
  const [least, most] = [8 - edge, innerWidth - 14 - edge - tip.offsetWidth]
  const beside = x + 14 <= most ? x + 14 : x - 14 - tip.offsetWidth
  tip.style.left = `${Math.max(least, Math.min(beside, most))}px`
}

function plotted(place, title, options, data) {
  const box = place.appendChild(made("div", undefined, "chart"))
  box.append(made("h3", title))
  const plot = new uPlot(options, data, box)
  plot.tip = plot.root.appendChild(made("div", undefined, "tip"))
  plot.tip.hidden = true
  plot.over.addEventListener("pointerenter", () => { pointed = plot })
  plot.over.addEventListener("pointerleave", () => { pointed = null; plot.tip.hidden = true })
  return plot
}

// Draw or renew all charts. `frame`: the newest; `marks`: events that are drawn through them.
let marks = []
function showCharts(frame, points, snapshots, now, sinceFrame) {
  const place = at("charts")
  const { vertices } = frame
  const shown = CHARTS.map(chart => {
    const raw = columnsOf(points, vertices, chart, now, sinceFrame)
    const kind = scaleFor(raw, chart)
    const own = ([times, ...columns]) => [times, ...columns.map(column => {
      const top = highest(column)
      return column.map(value => value === null || !top ? value : value / top)
    })]
    return { chart, kind, raw, data: kind === "each its own" ? own(raw) : raw }
  }).filter(({ raw }) => raw.slice(1).some(column => column.some(value => value !== null)))
  const dark = matchMedia("(prefers-color-scheme: dark)").matches
  const taken = snapshots.filter(one => one[1] != null)
  const key = JSON.stringify([shown.map(one => [one.chart.title, one.kind]), vertices.map(v => v.name), [...off], dark, place.clientWidth, taken.length > 1])
  const ofSnapshots = taken.length > 1 ? OF_SNAPSHOTS.map(chart => [taken.map(one => one[0]), taken.map(one => one[chart.place])]) : []
  if (key !== drawnAs) {
    drawnAs = key
    pointed = null
    for (const { plot } of plots) plot.destroy()
    place.replaceChildren()
    plots = []
    const columns = getComputedStyle(place).gridTemplateColumns.split(" ").length
    const width = Math.floor((place.clientWidth - 22 * (columns - 1)) / columns)
    for (const one of shown) {
      const held = { raw: one.raw, chart: one.chart }
      const format = (n, idx) => held.chart.exact ? exactly(held.raw[n + 1][idx]) : withUnit(held.raw[n + 1][idx], held.chart.unit)
      const note = { logarithmic: ", logarithmic", "each its own": ", each by its own highest" }[one.kind] ?? ""
      held.plot = plotted(place, `${one.chart.title}${note}`, plotOptions(one.chart, one.kind, vertices, width, format), one.data)
      plots.push(held)
    }
    ofSnapshots.forEach((data, n) => {
      const chart = { ...OF_SNAPSHOTS[n], bars: true }
      const held = { raw: data, chart }
      const format = (_, idx) => withUnit(held.raw[1][idx], chart.unit)
      held.plot = plotted(place, chart.title, plotOptions(chart, "linear", [{ name: "snapshot", title: "snapshot" }], width, format), data)
      plots.push(held)
    })
    return
  }
  plots.forEach((held, n) => {
    held.raw = n < shown.length ? shown[n].raw : ofSnapshots[n - shown.length]
    held.plot.setData(n < shown.length ? shown[n].data : held.raw)
  })
}

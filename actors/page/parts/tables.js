// Figures at the head, the table of vertices, and what has happened.
const opened = new Set()
let group = "all"

function showHeadline(figures) {
  at("headline").replaceChildren(...figures.map(figure => {
    const box = made("div", undefined, "figure", figure.tone)
    box.append(made("b", figure.name))
    const value = box.appendChild(made("strong"))
    value.append(made("span"), made("small"))
    box.append(made("span", undefined, "note"))
    return box
  }))
  tickHeadline(figures, 0)
}

// Clocks run on in the browser.
function tickHeadline(figures, since) {
  figures.forEach((figure, n) => {
    const box = at("headline").children[n]
    const [value, unit] = figure.since_s === null ? [figure.value, figure.unit] : lasting(figure.since_s + since)
    box.querySelector("strong span").textContent = value
    box.querySelector("strong small").textContent = figure.since_s === null ? unit : `${unit} ${figure.unit}`.trim()
    const note = figure.note_since_s === null ? figure.note : figure.note.replace("{}", lasting(figure.note_since_s + since).join(" "))
    box.querySelector(".note").textContent = note
  })
}

function showVertices(frame) {
  const table = made("table")
  const head = table.appendChild(made("tr"))
  for (const name of frame.header) head.append(made("th", name))
  head.children[3].after(made("th", "time"))
  const across = frame.header.length + 1
  for (const [n, vertex] of frame.vertices.entries()) {
    const row = table.appendChild(made("tr"))
    row.append(...vertex.cells.map((cell, place) => made("td", place ? cell : undefined)))
    const isOpen = opened.has(vertex.name)
    const name = row.children[0].appendChild(made("button", `${isOpen ? "▾" : "▸"}\u00a0${vertex.name}`, "open"))
    const below = [vertex.title === vertex.name || vertex.title === vertex.steps[0] ? "" : vertex.title, stepsOf(vertex)].filter(Boolean).join(": ")
    if (below) row.children[0].append(made("small", below))
    name.title = `${vertex.name} ${vertex.where}`
    name.ariaExpanded = isOpen
    name.addEventListener("click", () => {
      if (!opened.delete(vertex.name)) opened.add(vertex.name)
      showVertices(frame)
    })
    row.children[frame.header.indexOf("lag (s)")].dataset.lag = n
    row.children[frame.header.indexOf("frontier")].classList.add("times")
    row.children[3].after(made("td"))
    row.children[4].append(sharesOf(vertex.shares))
    if (!isOpen) continue
    const about = table.appendChild(made("tr", undefined, "replica", "about")).appendChild(made("td"))
    about.colSpan = across
    const told = [vertex.where && `made at ${vertex.where}`, vertex.steps.length && `then ${stepsOf(vertex)}`,
      vertex.read_by && `read by ${vertex.read_by}`].filter(Boolean).join("; ")
    about.append(told)
    if (may("state")) {
      const look = made("button", "first keys of its state", "button")
      look.addEventListener("click", () => askForState(vertex.name))
      about.append(" ", look)
    }
    for (const cells of vertex.replicas) {
      const line = table.appendChild(made("tr", undefined, "replica"))
      line.append(...cells.map(cell => made("td", cell.trim())))
      line.children[3].after(made("td"))
    }
  }
  at("vertices").replaceChildren(table)
}

function sharesOf(shares) {
  const whole = made("span", undefined, "shares")
  for (const [n, name] of ["busy", "idle", "pressed"].entries()) {
    const part = whole.appendChild(made("span"))
    part.style.width = `${100 * (shares[n] ?? 0)}%`
    part.style.background = `var(--${name})`
  }
  whole.title = "busy, idle, back-pressured; what is left: others of its worker ran"
  return whole
}

function eventLine(line, first) {
  const row = made("div", undefined, "event", line.group)
  const when = row.appendChild(made("time", clock(line.at_s)))
  when.title = `${(line.at_s - first).toFixed(1)} s after the first event`
  const what = row.appendChild(made("p"))
  if (!line.folded.length && line.kind !== "snapshot") what.append(made("b", line.kind), " ")
  what.append(line.what)
  if (line.facts) row.append(made("p", line.facts, "facts"))
  if (line.folded.length) {
    const more = row.appendChild(made("details"))
    more.append(made("summary", "each of them"))
    for (const one of line.folded) more.append(made("p", `${clock(one.at_s)}  ${one.what}${one.facts ? `; ${one.facts}` : ""}`))
  }
  return row
}

function showEvents(events) {
  const open = new Set([...at("events").querySelectorAll("details[open]")].map(one => one.dataset.key))
  at("events").replaceChildren(...events.lines.map(line => {
    const row = eventLine(line, events.first_s)
    const more = row.querySelector("details")
    if (more) {
      more.dataset.key = line.folded.at(-1).what  // the oldest of them stays as others come
      more.open = open.has(more.dataset.key)
    }
    return row
  }))
  at("failure").hidden = !events.failure
  at("failure").textContent = events.failure
  filterEvents()
}

function filterEvents() {
  for (const row of at("events").children) row.hidden = group !== "all" && !row.classList.contains(group)
}

// What the page asks its server for: steps of the job, and the first rows of a state. Only where the page was opened with them.
const may = what => document.body.dataset.may.split(" ").includes(what)
const dialog = at("dialog")

async function asked(path, body) {
  try {
    const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) })
    if (answer.ok) return await answer.json()
    return { is_done: false, told: (await answer.text()).trim() }
  } catch {
    return { is_done: false, told: "no answer: the connection to the page's server is lost. Whether it was done is seen below, in what has happened." }
  }
}

function opensDialog(title, ...parts) {
  dialog.replaceChildren(made("h2", title), ...parts)
  if (!dialog.open) dialog.showModal()
}

function buttons(...all) {
  const row = made("div", undefined, "buttons")
  row.append(...all)
  return row
}

function closes(text = "Close") {
  const button = made("button", text, "button")
  button.addEventListener("click", () => dialog.close())
  return button
}

function answered(title, answer) {
  opensDialog(title, made("p", answer.told, "answer", answer.is_done ? "good" : "bad"), buttons(closes()))
}

// Ask for one step: say what it does, wait until somebody confirms, show what came of it.
function confirms(step, title, text, does, fields, isBad) {
  const go = made("button", does, "button", "main", ...isBad ? ["bad"] : [])
  const row = made("div", undefined, "fields")
  row.append(...fields.map(field => field.label))
  const parts = fields.length ? [made("p", text), row] : [made("p", text)]
  opensDialog(title, ...parts, buttons(closes("Do nothing"), go))
  go.addEventListener("click", async () => {
    const body = { job: jobName(), step, ...Object.fromEntries(fields.map(field => [field.name, field.value()])) }
    opensDialog(title, made("p", "Under way. This may take a while; the job is not held up by this window."), buttons(closes()))
    for (const button of at("steps").children) button.disabled = true
    const answer = await asked(`steps${location.search}`, body)
    for (const button of at("steps").children) button.disabled = false
    answered(title, answer)
  })
}

function labelled(text, control) {
  const label = made("label", `${text} `)
  label.append(control)
  return label
}

function asksForRescale() {
  const vertex = made("select")
  for (const one of verticesOfJob()) vertex.append(made("option", one.name))
  const count = made("input")
  Object.assign(count, { type: "number", min: 1, step: 1, size: 5 })
  const now = () => { count.value = verticesOfJob().find(one => one.name === vertex.value)?.parallelism ?? 1 }
  vertex.addEventListener("change", now)
  now()
  confirms("rescale", `Rescale a vertex of ${jobName()}`,
    "The vertex gets this number of replicas while the job runs. Keyed state moves along, a few key-groups at a time.", "Rescale", [
      { name: "vertex", label: labelled("vertex", vertex), value: () => vertex.value },
      { name: "replicas", label: labelled("replicas", count), value: () => Number(count.value) },
    ])
}

function showSteps() {
  const all = [
    ["Savepoint", () => confirms("savepoint", `Savepoint of ${jobName()}`,
      "A snapshot is taken now and kept until you delete it. The job goes on.", "Take the savepoint", [])],
    ["Rescale", asksForRescale],
    ["Stop", () => confirms("stop", `Stop ${jobName()}`,
      "Its sources read no more, what is under way is finished, results are published, and the job ends. This cannot be taken back.",
      "Stop the job", [], true)],
  ]
  at("steps").hidden = false
  at("steps").replaceChildren(...all.map(([text, does]) => {
    const button = made("button", text, "button", ...text === "Stop" ? ["bad"] : [])
    button.addEventListener("click", does)
    return button
  }))
}

async function askForState(vertex) {
  const title = `State of ${vertex}`
  opensDialog(title, made("p", "Reading the newest snapshot."), buttons(closes()))
  const query = new URLSearchParams(location.search)
  query.set("vertex", vertex)
  const answer = await asked(`state?${query}`, {})
  if (!answer.is_done) return answered(title, answer)
  const tables = answer.tables.flatMap(({ name, columns, rows, count }) => {
    const table = made("table")
    const head = table.appendChild(made("tr"))
    head.append(...columns.map(column => made("th", column)))
    for (const row of rows) table.appendChild(made("tr")).append(...row.map(cell => made("td", cell)))
    const box = made("div", undefined, "wide")
    box.append(table)
    return [made("p", `${name}: ${count}`), box]
  })
  opensDialog(title, made("p", answer.told), ...tables, buttons(closes()))
}

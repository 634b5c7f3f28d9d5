// What all parts of the page use. The server writes the figures (rayad top shows the same); all text goes in as text, and there is no HTML.
const at = id => document.getElementById(id)
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim()
const SVG = "http://www.w3.org/2000/svg"
const COLOURS = 8

function made(tag, text, ...classes) {
  const one = document.createElement(tag)
  if (text !== undefined) one.textContent = text
  one.classList.add(...classes)
  return one
}

function drawn(tag, attributes, text) {
  const one = document.createElementNS(SVG, tag)
  for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value)
  if (text !== undefined) one.textContent = text
  return one
}

// The colour of a line, by its place; beyond the eighth lines are dashed.
const colourOf = n => `--line-${n % COLOURS}`
const dashOf = n => [[], [7, 4], [2, 3]][Math.floor(n / COLOURS) % 3]

const UNITS = ["", "k", "M", "G", "T", "P"]

// A number with three digits; "127 k" of it is [127, "k"].
function scaled(value) {
  const size = Math.abs(value)
  const step = size >= 999.5 ? Math.min(UNITS.length - 1, Math.floor(Math.log10(size * 1.0005) / 3)) : 0
  return [Number((value / 10 ** (3 * step)).toPrecision(3)), UNITS[step]]
}

const short = value => value == null ? "" : scaled(value).join("")
const withUnit = (value, unit) => value == null ? "-" : `${scaled(value)[0]} ${scaled(value)[1]}${unit}`.replace(/ $/, "").replace(" /", "/")

// A duration as [number, unit], for large and small type.
function lasting(seconds) {
  if (seconds < 10) return [seconds.toFixed(1), "s"]
  if (seconds < 120) return [String(Math.round(seconds)), "s"]
  const minutes = Math.floor(seconds / 60)
  if (minutes < 120) return [String(minutes), "min"]
  const hours = Math.floor(minutes / 60)
  return hours < 48 ? [`${hours}:${String(minutes % 60).padStart(2, "0")}`, "h"] : [(hours / 24).toFixed(1), "days"]
}

const clock = (seconds, withSeconds = true) =>
  new Date(1000 * seconds).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: withSeconds ? "2-digit" : undefined })

// Buttons of which one is pressed; `chosen` says which, and `choose` is told.
function choices(place, names, chosen, choose) {
  const show = () => {
    for (const button of place.children) button.ariaPressed = button.dataset.choice === chosen()
  }
  for (const name of names) {
    const button = place.appendChild(made("button", name, "choice"))
    button.dataset.choice = name
    button.addEventListener("click", () => { choose(name); show() })
  }
  show()
}

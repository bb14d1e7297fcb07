"""What a page wears: its style sheet, and the script that sorts its tables and turns the light on and off.

Both stand in the page itself. The script is all the page runs. Without it the page is whole, only unsorted and in the
reader's own light; a print is always light and has no buttons. Pictures keep white paper in the dark, because their ink
is dark; on a phone they scroll rather than shrink.
"""

LIGHT = """--paper: #ffffff; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --band: #f6f8fa; --link: #0550ae;"""
DARK = """--paper: #14171c; --ink: #e6e9ed; --soft: #a3adb8; --line: #3a424c; --band: #1d2229; --link: #79b8ff;"""

THEMES = f"""
:root {{ color-scheme: light dark; {LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}
:root[data-light="on"] {{ color-scheme: light; {LIGHT} }}
:root[data-light="off"] {{ color-scheme: dark; {DARK} }}
"""

CSS = (
    THEMES
    + """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 4rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .75rem; padding-top: .75rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.08rem; margin: 1.75rem 0 .5rem; }
.light { float: right; font: inherit; font-size: .9rem; color: var(--ink); background: var(--band); cursor: pointer;
  border: 1px solid var(--line); border-radius: 999px; padding: .2rem .75rem; margin: 0 0 .5rem .75rem; }
p { margin: .6rem 0; max-width: 46rem; white-space: pre-line; }
a { color: var(--link); }
.lead { font-size: 1.15rem; }
.note, footer, figcaption, caption { color: var(--soft); font-size: .9rem; }
.skip { position: absolute; left: -100vw; }
.skip:focus { left: 1rem; top: .5rem; background: var(--paper); padding: .5rem .75rem; outline: 2px solid var(--link); }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
main:focus { outline: none; }
nav ol { columns: 16rem auto; margin: 1rem 0; padding-left: 1.4rem; }
.scroll { overflow-x: auto; margin: 1rem 0 .25rem; }
table { border-collapse: collapse; width: max-content; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: .35rem; color: var(--ink); }
th, td { padding: .3rem .6rem; max-width: 26rem; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; overflow-wrap: break-word; white-space: pre-line; }
thead th { border-bottom: 2px solid var(--soft); vertical-align: bottom; }
tbody th { font-weight: 500; }
tbody tr:nth-child(even) { background: var(--band); }
td[style] { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
.number { text-align: right; }
td.number { white-space: nowrap; }
.prose { min-width: 15rem; }
table:has(.prose) { width: auto; }
table:has(.prose) :is(th, td) { overflow-wrap: anywhere; }
table:has(.prose) thead th { min-width: 7rem; }
th button { all: unset; cursor: pointer; font-weight: 600; overflow-wrap: anywhere; }
th button:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
th button::after { content: "\\2195"; color: var(--soft); padding-left: .2em; font-size: .8em;
  font-weight: 400; }
th[aria-sort="ascending"] button::after { content: "\\2191"; color: inherit; }
th[aria-sort="descending"] button::after { content: "\\2193"; color: inherit; }
figure { margin: 1.25rem 0; }
figure .scroll { margin: 0; }
.side { display: inline-block; vertical-align: top; max-width: calc(100% - 1.5rem); margin: .75rem 1.5rem .5rem 0; }
.side th, .side td { padding: .25rem .45rem; max-width: 12rem; }
.side .note { max-width: 24rem; margin: .35rem 0 0; }
img { max-width: 100%; height: auto; background: #ffffff; border: 1px solid var(--line); border-radius: 4px;
  padding: .25rem; }
@media screen and (max-width: 36rem) { img { max-width: none; width: 33rem; }
  table { width: auto; font-size: .86rem; } th, td, .side th, .side td { padding: .25rem .3rem; }
  th button { overflow-wrap: break-word; }
  .side { display: block; max-width: 100%; margin-right: 0; } }
pre { background: var(--band); border: 1px solid var(--line); border-radius: 4px; padding: .7rem .9rem;
  overflow-x: auto; font-size: .88rem; overflow-wrap: normal; }
footer { margin-top: 3rem; border-top: 1px solid var(--line); }
@media print { :root, :root[data-light] { color-scheme: light; --paper: #ffffff; --ink: #000000; --soft: #444444;
    --line: #bbbbbb; --band: #f4f4f4; }
  body { max-width: none; padding: 0; font-size: 10pt; } .skip, nav, .light { display: none; }
  .scroll { overflow: visible; }
  table { width: auto; }
  th button::after { content: "" !important; } figure, tr { break-inside: avoid; } h2 { break-after: avoid; }
  pre { white-space: pre-wrap; } }
"""
)

# Numbers sort by data-value, words as people sort them; what is missing stays at the end both ways; equals keep order.
SCRIPT = """
"use strict";
for (const table of document.querySelectorAll(".scroll table")) {
  const heads = table.tHead.rows[0].cells, body = table.tBodies[0];
  if (body.rows.length < 2) continue;
  const key = (row, i) => {
    const cell = row.cells[i], text = cell.textContent.trim();
    return "value" in cell.dataset ? Number(cell.dataset.value) : text === "-" ? null : text;
  };
  const order = (a, b, sign) => {
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return sign * (typeof a === "number" ? a - b : a.localeCompare(b, undefined, {numeric: true}));
  };
  Array.from(heads).forEach((head, i) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    if (!button.textContent.trim()) button.setAttribute("aria-label", "column " + (i + 1));
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = Array.from(body.rows);
      rows.sort((a, b) => order(key(a, i), key(b, i), up ? 1 : -1));
      body.append(...rows);
    });
  });
}
const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
const dark = () => root.dataset.light ? root.dataset.light === "off" : system.matches;
const light = document.createElement("button");
const say = () => { light.textContent = dark() ? "Light" : "Dark"; light.ariaLabel = light.textContent + " colours"; };
light.type = "button";
light.className = "light";
light.addEventListener("click", () => { root.dataset.light = dark() ? "on" : "off"; say(); });
system.addEventListener("change", say);
say();
document.querySelector("header").prepend(light);
"""

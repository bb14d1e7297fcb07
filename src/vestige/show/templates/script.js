{#- All that the page runs. Numbers sort by data-value, words as people sort them; what is missing stays at the end both
ways; equals keep order. -#}
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
for (const picture of document.querySelectorAll("figure img"))
  picture.addEventListener("click", () => picture.classList.toggle("whole"));
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

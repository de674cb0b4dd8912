"use strict";
// Sorting and filtering of the table of measurements; the page is complete without it.
(() => {
  const table = document.getElementById("measurements"), body = table.tBodies[0];
  const rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  const form = document.getElementById("filters"), count = document.getElementById("count");

  // A number where the cell has one; what has none sorts last in either direction.
  const key = (row, k) => {
    const cell = row.cells[k];
    if (cell.dataset.value === undefined) return cell.textContent.toLowerCase();
    return cell.dataset.value === "" ? null : Number(cell.dataset.value);
  };
  const sort = (k) => {
    const down = heads[k].getAttribute("aria-sort") === "ascending", sign = down ? -1 : 1;
    heads.forEach((head, j) => head.setAttribute("aria-sort", j !== k ? "none" : down ? "descending" : "ascending"));
    const keyed = rows.map((row) => [key(row, k), row]);
    keyed.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return a < b ? -sign : a > b ? sign : 0;
    });
    keyed.forEach(([, row]) => body.append(row));
  };
  const filter = () => {
    const text = document.getElementById("text").value.trim().toLowerCase();
    const ours = document.getElementById("ours").checked;
    const chosen = [...form.querySelectorAll("select")].filter((s) => s.value !== "");
    let shown = 0;
    for (const row of rows) {
      // A status may be followed by its reason: the first text of the cell is the value.
      const fits = chosen.every((s) => row.cells[s.dataset.filter].firstChild.textContent === s.value);
      row.hidden = !(fits && (!ours || row.classList.contains("ours")) && row.textContent.toLowerCase().includes(text));
      shown += !row.hidden;
    }
    count.textContent = `${shown} of ${rows.length} rows`;
  };
  heads.forEach((head, k) => head.firstElementChild.addEventListener("click", () => sort(k)));
  form.addEventListener("input", filter);
  form.addEventListener("reset", () => setTimeout(filter));
  form.addEventListener("submit", (event) => event.preventDefault());
  // A link into the table or to a fingerprint must not lead to something that is folded or filtered away.
  const reveal = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (!target) return;
    if (target.tagName === "DETAILS") target.open = true;
    if (target.tagName === "TR" && target.hidden) { form.reset(); setTimeout(() => target.scrollIntoView()); }
  };
  addEventListener("hashchange", reveal);
  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = (root.dataset.theme || (dark ? "dark" : "light")) === "dark" ? "light" : "dark";
  });
  filter();
  reveal();
})();

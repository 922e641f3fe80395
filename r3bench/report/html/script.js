"use strict";
// Sorting of tables by their headings. Buttons bring the keyboard with them; aria-sort tells screen readers.
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const heading = button.closest("th"), body = heading.closest("table").tBodies[0];
    const down = heading.getAttribute("aria-sort") === "ascending", column = heading.cellIndex;
    const value = (row) => {
      const cell = row.cells[column];
      return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
    };
    const order = (a, b) => {
      const [x, y] = [value(a), value(b)];
      if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
      return (typeof x === "number" ? x - y : x.localeCompare(y, undefined, { numeric: true })) * (down ? -1 : 1);
    };
    for (const other of heading.parentElement.cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...[...body.rows].sort(order));
  });
}

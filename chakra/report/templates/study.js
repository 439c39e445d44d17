"use strict";
// The table of designs: headings sort, a line of conditions filters. Without scripts the table is as it is written.
(() => {
    const table = document.getElementById("table");
    if (!table) return;
    const body = table.tBodies[0], headings = [...table.tHead.rows[0].cells], rows = [...body.rows];
    const names = headings.map(cell => cell.dataset.name);
    const value = (row, k) => {
        const cell = row.cells[k];
        return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent.trim();
    };
    const before = (a, b) => {
        const numbers = typeof a === "number" && typeof b === "number";
        return numbers ? a - b : typeof a === typeof b ? a.localeCompare(b) : typeof a === "number" ? -1 : 1;
    };

    function sortBy(k, heading) {
        const down = heading.getAttribute("aria-sort") === "ascending";
        headings.forEach(other => other.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", down ? "descending" : "ascending");
        const ordered = [...rows].sort((a, b) => (down ? -1 : 1) * before(value(a, k), value(b, k)));
        body.append(...ordered);
    }

    headings.forEach((heading, k) => {
        const button = document.createElement("button");
        button.type = "button";
        button.append(...heading.childNodes);
        heading.append(button);
        button.addEventListener("click", () => sortBy(k, heading));
    });

    const compared = {
        "=": (a, b) => a === b, "<": (a, b) => a < b, ">": (a, b) => a > b, "<=": (a, b) => a <= b, ">=": (a, b) => a >= b,
    };

    function condition(text) {
        const found = /^\s*([^<>=]+?)\s*(<=|>=|=|<|>)\s*(.+?)\s*$/.exec(text);
        const wanted = found && found[1].toLowerCase();
        const k = found ? names.findIndex(name => name === wanted || name.endsWith("." + wanted)) : -1;
        if (k < 0) return row => row.textContent.toLowerCase().includes(text.trim().toLowerCase());
        const number = Number(found[3].replaceAll(",", ""));
        return row => {
            const held = value(row, k);
            const other = typeof held === "number" ? number : found[3].toLowerCase();
            return compared[found[2]](typeof held === "number" ? held : held.toLowerCase(), other);
        };
    }

    const input = document.getElementById("filter"), shown = document.getElementById("shown");

    function filter() {
        const conditions = input.value.split(",").filter(text => text.trim()).map(condition);
        let count = 0;
        for (const row of rows) {
            row.hidden = !conditions.every(holds => holds(row));
            count += !row.hidden;
        }
        shown.textContent = conditions.length ? `${count} of ${rows.length}` : "";
    }

    const form = document.getElementById("filters");
    form.hidden = false;
    form.addEventListener("submit", event => event.preventDefault());
    input.addEventListener("input", filter);
})();

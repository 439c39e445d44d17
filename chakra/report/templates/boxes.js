"use strict";
// Boxes that scroll say so, above them: what is out of sight is there.
(() => {
    for (const box of document.querySelectorAll(".wide")) {
        const said = document.createElement("p");
        said.className = "small more";
        said.hidden = true;
        box.before(said);
        const [columns, rows] = box.querySelector("table") ? ["columns", "rows"] : ["the picture", "the picture"];
        const look = () => {
            const across = box.scrollWidth > box.clientWidth + 1, down = box.scrollHeight > box.clientHeight + 1;
            const ways = [across && `sideways for more ${columns}`, down && `down for more ${rows}`].filter(Boolean);
            said.textContent = `Scroll in the box ${ways.join(", ")}.`.replace("more the", "the rest of the");
            said.hidden = !ways.length;
            box.classList.toggle("over", across || down);
        };
        new ResizeObserver(look).observe(box);
        look();
    }
})();

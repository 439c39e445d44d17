"use strict";
// The timeline of a report, to zoom into: a canvas in the place of the picture, which stays for paper.
(() => {
    const figure = document.getElementById("zoom");
    if (!figure) return;
    const data = JSON.parse(document.getElementById("slices").textContent);
    const canvas = figure.querySelector("canvas"), said = figure.querySelector("output");
    const pen = canvas.getContext("2d");
    const ROW = 20, TOP = 2, END = Math.max(data.end, 1);
    const height = data.rows.length * ROW + 26;
    const rows = data.rows.map(row => {
        const slices = [];
        let at = 0;
        for (let k = 0; k < row.slices.length; k += 4) {
            const [gap, length, name, look] = row.slices.slice(k, k + 4);
            slices.push({start: at + gap, length, name: data.names[name], look});
            at += gap + length;
        }
        return {label: row.label, slices};
    });
    let from = 0, to = END;

    const unit = ns => {
        const units = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];
        const [word, size] = units.find(([, least]) => Math.abs(ns) >= least) || units[3];
        return `${Number((ns / size).toPrecision(6))} ${word}`;
    };
    const width = () => canvas.clientWidth;
    let LEFT = 206;
    const x = ns => LEFT + (ns - from) / (to - from) * (width() - LEFT - 10);
    const time = px => from + (px - LEFT) / (width() - LEFT - 10) * (to - from);

    function step() {
        const rough = (to - from) / Math.max((width() - LEFT) / 110, 1), power = 10 ** Math.floor(Math.log10(rough));
        return Math.max([1, 2, 5, 10].map(digit => digit * power).find(size => size >= rough), 1);
    }

    function draw() {
        const ratio = window.devicePixelRatio || 1, style = getComputedStyle(document.body);
        const ink = style.getPropertyValue("--ink"), rule = style.getPropertyValue("--rule");
        LEFT = Math.min(206, width() * 0.42);
        canvas.width = width() * ratio;
        canvas.height = height * ratio;
        pen.setTransform(ratio, 0, 0, ratio, 0, 0);
        pen.font = "11px Helvetica, Arial, sans-serif";
        pen.clearRect(0, 0, width(), height);
        const every = step();
        for (let tick = Math.ceil(from / every) * every; tick <= to; tick += every) {
            pen.fillStyle = rule;
            pen.fillRect(x(tick), 0, 1, height - 22);
            pen.fillStyle = ink;
            pen.textAlign = "center";
            pen.fillText(tick === 0 ? "0 ns" : unit(tick), Math.min(x(tick), width() - 30), height - 8);
        }
        rows.forEach((row, k) => {
            const y = k * ROW + TOP;
            pen.fillStyle = ink;
            pen.textAlign = "right";
            pen.fillText(row.label, LEFT - 8, y + 12, LEFT - 10);
            let last = -1;
            for (const slice of row.slices) {
                const a = Math.max(x(slice.start), LEFT), b = Math.min(x(slice.start + slice.length), width() - 10);
                if (b < LEFT || a > width() - 10) continue;
                // what lies within one pixel is drawn once
                if (b - a < 1 && Math.floor(a) === last) continue;
                last = Math.floor(a);
                pen.fillStyle = data.looks[slice.look];
                pen.fillRect(a, y, Math.max(b - a - (b - a > 3 ? 0.5 : 0), 1), 15);
                if (b - a > 40) {
                    pen.save();
                    pen.beginPath();
                    pen.rect(a, y, b - a - 2, 15);
                    pen.clip();
                    pen.fillStyle = ["#0072b2"].includes(data.looks[slice.look]) ? "#fff" : "#111";
                    pen.textAlign = "left";
                    pen.fillText(slice.name, a + 3, y + 11);
                    pen.restore();
                }
            }
        });
    }

    function show(newFrom, newTo) {
        const span = Math.min(Math.max(newTo - newFrom, 20), END);
        from = Math.min(Math.max(newFrom, 0), END - span);
        to = from + span;
        draw();
    }

    function zoom(factor, around) {
        const middle = around === undefined ? (from + to) / 2 : around;
        show(middle - (middle - from) * factor, middle + (to - middle) * factor);
    }

    function at(px, py) {
        const row = rows[Math.floor((py - TOP) / ROW)], reach = (to - from) / Math.max(width() - LEFT, 1);
        if (!row || px < LEFT) return null;
        const ns = time(px);
        const under = row.slices.filter(s => s.start - reach <= ns && ns <= s.start + s.length + reach);
        return under.length ? under.reduce((a, b) => a.length <= b.length ? a : b) : null;
    }

    let held = null;
    canvas.addEventListener("pointerdown", event => {
        held = {x: event.offsetX, from, to};
        canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", event => {
        if (held) {
            const moved = (event.offsetX - held.x) / (width() - LEFT - 10) * (held.to - held.from);
            show(held.from - moved, held.to - moved);
            return;
        }
        const slice = at(event.offsetX, event.offsetY);
        said.textContent = slice ? `${slice.name}: ${unit(slice.start)} + ${unit(slice.length)}` : "";
    });
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { held = null; });
    canvas.addEventListener("dblclick", event => zoom(0.4, time(event.offsetX)));
    // a wheel alone scrolls the page
    canvas.addEventListener("wheel", event => {
        if (!event.ctrlKey && !event.metaKey && !event.shiftKey) return;
        event.preventDefault();
        zoom(1.2 ** Math.sign(event.deltaY || event.deltaX), time(event.offsetX));
    }, {passive: false});
    const acts = {
        "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), "0": () => show(0, END),
        ArrowLeft: () => show(from - (to - from) / 5, to - (to - from) / 5),
        ArrowRight: () => show(from + (to - from) / 5, to + (to - from) / 5),
    };
    canvas.addEventListener("keydown", event => {
        if (!acts[event.key]) return;
        event.preventDefault();
        acts[event.key]();
    });
    figure.querySelectorAll("button").forEach(button => button.addEventListener("click", acts[button.value]));
    figure.classList.add("live");
    canvas.style.height = `${height}px`;
    new ResizeObserver(draw).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    draw();
    window.chakra = {span: () => [from, to], place: (row, ns) => [x(ns), row * ROW + TOP + 7], rows: rows.length};
})();

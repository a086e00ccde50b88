"use strict";
// Without scripts the page says the same; with them it points.

const graph = document.querySelector(".graph");
const lines = [...graph.querySelectorAll("g[data-ends]")].map((line) => ({
  line,
  ends: new Set(line.dataset.ends.split(" ")),
  // One to many: what the others of a brood are linked with is not their neighbour.
  from: line.classList.contains("far") ? null : line.dataset.ends.split(" ")[0],
}));

function light(row) {
  graph.classList.toggle("pointed", row !== null);
  graph.querySelectorAll(".lit").forEach((lit) => lit.classList.remove("lit"));
  if (row === null) return;
  const number = row.id.slice(1);
  row.classList.add("lit");
  for (const { line, ends, from } of lines) {
    if (!ends.has(number)) continue;
    line.classList.add("lit");
    const others = from === null || from === number ? ends : [from];
    others.forEach((end) => document.getElementById(`r${end}`).classList.add("lit"));
  }
}

for (const row of graph.querySelectorAll(".row")) {
  row.addEventListener("mouseenter", () => light(row));
  row.addEventListener("mouseleave", () => light(null));
}

// What a pixel of a mask says, in words.
function name(cell) {
  const element = document.getElementById(`c${cell}`);
  const header = element.closest(".row").querySelector("header");
  const row = `${header.querySelector("b").textContent} ${header.querySelector("code").textContent}`;
  return `${row} · ${(element.querySelector("b") ?? element).textContent} (cell ${cell})`;
}

for (const figure of document.querySelectorAll("figure.mask")) {
  const svg = figure.querySelector("svg");
  const output = figure.querySelector("output");
  const order = JSON.parse(svg.dataset.order);
  const [axis, scale] = [Number(svg.dataset.axis), Number(svg.dataset.scale)];
  const picture = new Image();
  let pixels = null;
  picture.addEventListener("load", () => {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = order.length;
    const context = canvas.getContext("2d");
    context.drawImage(picture, 0, 0);
    pixels = context.getImageData(0, 0, order.length, order.length).data;
  });
  picture.src = svg.querySelector("image").getAttribute("href");
  svg.addEventListener("mousemove", (event) => {
    const box = svg.getBoundingClientRect();
    const place = (at) => Math.floor((at - axis) / scale);
    const [from, to] = [place(event.clientY - box.top), place(event.clientX - box.left)];
    if (pixels === null || !(from in order && to in order)) return;
    const attends = pixels[4 * (from * order.length + to) + 3] > 0;
    const verb = attends ? "attends to" : "does not attend to";
    output.textContent = `${name(order[from])} ${verb} ${name(order[to])}.`;
  });
}

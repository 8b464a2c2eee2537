// The numbers under the pointer, read back from the shapes: nothing is stored twice.
(() => {
  const numbers = (element, name) => element.dataset[name].split(" ");
  // Points lie on tenths of a pixel, steps and rows on whole numbers.
  const shownX = (svg, value) => {
    const { xname, dates, row } = svg.dataset;
    if (dates) return `${dates.split("|")[Math.round(value) - Number(row)]}, row ${Math.round(value)}`;
    return `${xname} ${["steps", "row"].includes(xname) ? Math.round(value) : shown(value)}`;
  };
  // Next to others within a range, with as many digits as tell them apart.
  const shown = (value, range = 0) => {
    const size = Math.abs(value);
    if (range > 0 && range < 1e-2 * size) return value.toPrecision(Math.min(17, Math.ceil(Math.log10(size / range)) + 3));
    return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  };
  const readout = document.createElement("div");
  readout.className = "readout";
  readout.hidden = true;
  document.body.append(readout);

  for (const svg of document.querySelectorAll("svg[data-frame]")) {
    const [left, top, width, height] = numbers(svg, "frame").map(Number);
    const [fromX, toX] = numbers(svg, "x").map(Number);
    const [fromY, toY, scale] = numbers(svg, "y").map((part) => (isNaN(part) ? part : Number(part)));
    const valueX = (x) => fromX + ((x - left) / width) * (toX - fromX);
    const valueY = (y) => {
      const share = 1 - (y - top) / height;
      return scale === "log" ? fromY * (toY / fromY) ** share : fromY + share * (toY - fromY);
    };
    const lines = [...svg.querySelectorAll("polyline")].map((line) => ({
      name: line.dataset.name,
      shape: line.getAttribute("class"),
      points: line.getAttribute("points").split(" ").map((point) => point.split(",").map(Number)),
    }));
    const cross = document.createElementNS("http://www.w3.org/2000/svg", "line");
    cross.setAttribute("class", "cross");
    cross.setAttribute("y1", top);
    cross.setAttribute("y2", top + height);
    cross.style.display = "none";
    svg.append(cross);

    const nearest = (points, x) => points.reduce((best, point) => (Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best));
    const hide = () => {
      readout.hidden = true;
      cross.style.display = "none";
    };
    const show = (event) => {
      const box = svg.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
      const found = lines.map((line) => ({ ...line, point: nearest(line.points, x) })).filter((line) => Math.abs(line.point[0] - x) < 12);
      if (x < left || x > left + width || found.length === 0) return hide();
      cross.style.display = "";
      cross.setAttribute("x1", found[0].point[0]);
      cross.setAttribute("x2", found[0].point[0]);
      readout.replaceChildren();
      const add = (text, shape) => {
        const row = document.createElement("div");
        if (shape) row.append(Object.assign(document.createElement("b"), { className: shape.replace(/\b(line|faint|dashed|dotted)\b/g, "") }));
        row.append(text);
        readout.append(row);
      };
      add(shownX(svg, valueX(found[0].point[0])));
      for (const line of found) add(`${shown(valueY(line.point[1]), scale === "log" ? 0 : toY - fromY)}  ${line.name}`, line.shape);
      readout.hidden = false;
      const room = document.documentElement.clientWidth - readout.offsetWidth - 8;
      readout.style.left = `${Math.max(8, Math.min(event.clientX + 14, room)) + scrollX}px`;
      readout.style.top = `${event.clientY + 16 + scrollY}px`;
    };
    svg.addEventListener("pointermove", show);
    svg.addEventListener("pointerdown", show);
    svg.addEventListener("pointerleave", hide);
  }
})();

// Lines on a canvas, in the colours of the page.

/**
 * Draws lines over a common axis of positions.
 * @param {HTMLCanvasElement} canvas
 * @param {{values: ArrayLike<number>, first?: number, colour: string}[]} lines `first`: position of the first value
 * @param {{count?: number, low?: number, high?: number}} range positions and values that are shown; else what there is
 */
export function plot(canvas, lines, { count, low, high } = {}) {
  const ratio = devicePixelRatio, style = getComputedStyle(canvas);
  const width = canvas.width = canvas.clientWidth * ratio, height = canvas.height = canvas.clientHeight * ratio;
  const all = lines.flatMap(({ values }) => Array.from(values)).filter(Number.isFinite);
  count ??= Math.max(2, ...lines.map(({ values, first = 0 }) => first + values.length));
  low ??= Math.min(...all);
  high ??= Math.max(...all);
  const margin = 6 * ratio, left = 48 * ratio, context = canvas.getContext("2d");
  const x = (position) => left + (width - left - margin) * position / (count - 1);
  const y = (value) => height - margin - (height - 2 * margin) * (value - low) / (high - low || 1);
  context.clearRect(0, 0, width, height);
  context.lineWidth = 1.5 * ratio;
  context.lineJoin = "round";
  for (const { values, first = 0, colour } of lines) {
    context.strokeStyle = style.getPropertyValue(colour);
    context.beginPath();
    for (let i = 0; i < values.length; ++i) context.lineTo(x(first + i), y(values[i]));
    context.stroke();
  }
  context.fillStyle = style.getPropertyValue("--ink");
  context.font = `${11 * ratio}px system-ui, sans-serif`;
  context.textBaseline = "top";
  context.fillText(format(high), margin, margin);
  context.textBaseline = "bottom";
  context.fillText(format(low), margin, height - margin);
}

export const format = (value) => value.toLocaleString("en", { maximumSignificantDigits: 4, useGrouping: false });

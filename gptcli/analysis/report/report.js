"use strict";
// Draws the figures of a comparison from the JSON beside this script, in the colours of the page's style sheet.
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const groups = data.groups;
  const shown = groups.map(() => true);
  const narrow = window.matchMedia("(max-width: 46rem)");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // Plotly reads a few tags in its texts; labels are shown as they are.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const short = (text) => plain(text.length > 26 ? text.slice(0, 25) + "…" : text);
  const interval = (mean, half) => mean.toFixed(4) + (half === null ? "" : " ± " + half.toFixed(4));
  const faded = (colour) => colour + "2e";

  function layout(x, y, more) {
    const axis = { gridcolor: variable("--grid"), linecolor: variable("--line"), zeroline: false, automargin: true,
      title: { font: { size: 12, color: variable("--soft") }, standoff: 8 }, tickfont: { size: 12 } };
    const merge = (own) => Object.assign({}, axis, own, { title: Object.assign({}, axis.title, own.title) });
    return Object.assign({
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: "closest",
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: variable("--ink") },
      margin: { l: 8, r: 12, t: narrow.matches ? 8 : 28, b: 8 }, height: narrow.matches ? 300 : 360,
      xaxis: merge(x), yaxis: merge(y),
      modebar: { bgcolor: "rgba(0,0,0,0)", color: variable("--soft"), activecolor: variable("--ink") },
      hoverlabel: { bgcolor: variable("--paper"), bordercolor: variable("--line"), font: { color: variable("--ink") } },
    }, more);
  }

  function draw(name, traces, arrangement) {
    const figure = document.getElementById(name + "-figure");
    figure.hidden = traces.length === 0;
    if (traces.length === 0) return;
    const options = { responsive: true, displaylogo: false, modeBarButtons: [["toImage", "resetScale2d"]],
      displayModeBar: narrow.matches ? false : "hover", toImageButtonOptions: { filename: "compare-" + name, scale: 2 } };
    Plotly.react(name, traces, arrangement, options);
  }

  function curves() {
    const traces = [];
    groups.forEach((group, index) => {
      if (!group.curve || !shown[index]) return;
      const { steps, mean, half_width } = group.curve;
      if (steps.length > 1 && half_width.every((half) => half !== null)) {
        traces.push({
          type: "scatter", mode: "none", hoverinfo: "skip", fill: "toself", fillcolor: faded(group.colour),
          x: steps.concat(steps.slice().reverse()),
          y: mean.map((value, i) => value + half_width[i]).concat(mean.map((value, i) => value - half_width[i]).reverse()),
        });
      }
      traces.push({
        type: "scatter", mode: steps.length > 40 ? "lines" : "lines+markers", x: steps, y: mean, name: plain(group.label),
        line: { color: group.colour, width: 2, dash: group.is_baseline ? "dash" : "solid" }, marker: { size: 4 },
        text: mean.map((value, i) => plain(group.label) + "<br>step " + steps[i].toLocaleString("en") + "<br>" +
          interval(value, half_width[i])),
        hovertemplate: "%{text}<extra></extra>",
      });
    });
    draw("curves", traces, layout({ title: { text: "step" } },
      { title: { text: plain(data.curve) + " (nats)" }, range: data.curve_range }));
  }

  function differences() {
    const rows = groups.filter((group, index) => group.difference !== null && shown[index]);
    const traces = rows.map((group, row) => ({
      type: "scatter", mode: "markers", x: [group.difference], y: [row], marker: { color: group.colour, size: 9 },
      error_x: { type: "data", array: [group.difference_half_width || 0], thickness: 2, width: 5, color: group.colour },
      text: [plain(group.label) + "<br>" + interval(group.difference, group.difference_half_width) + "<br>" +
        plain(group.reading)],
      hovertemplate: "%{text}<extra></extra>",
    }));
    draw("differences", traces, layout(
      { title: { text: narrow.matches ? "nats; left is better" : "nats, 95 % interval; left is better" }, zeroline: true, zerolinecolor: variable("--soft") },
      { tickvals: rows.map((_, row) => row), ticktext: rows.map((group) => short(group.label)), showgrid: false,
        range: [rows.length - 0.5, -0.5] },
      { height: Math.max(narrow.matches ? 300 : 360, 60 + 24 * rows.length) }));
  }

  function scatter(name, words) {
    const points = groups.filter((group, index) => group[name] && shown[index]);
    const varied = new Set(groups.map((group) => group[name]).filter(Boolean)).size > 1;
    const traces = !varied ? [] : points.map((group) => ({
      type: "scatter", mode: groups.length <= 14 ? "markers+text" : "markers", x: [group[name]], y: [group.mean],
      marker: { color: group.colour, size: 9 }, text: ["\u2002" + short(group.label)], textposition: "middle right",
      textfont: { size: 11, color: variable("--soft") }, cliponaxis: false,
      error_y: { type: "data", array: [group.half_width || 0], thickness: 1.5, width: 4, color: group.colour },
      customdata: [plain(group.label) + "<br>" + group[name].toLocaleString("en", { maximumSignificantDigits: 4 }) +
        " " + words + "<br>" + interval(group.mean, group.half_width)],
      hovertemplate: "%{customdata}<extra></extra>",
    }));
    const sizes = points.map((group) => group[name]);
    const log = Math.max(...sizes) > 4 * Math.min(...sizes);
    const values = log ? sizes.map(Math.log10) : sizes;
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const room = 0.14 * (high - low) || 0.05 * high;
    draw(name, traces, layout(
      { title: { text: words }, type: log ? "log" : "linear", range: [low - room, high + room],
        // On a logarithmic axis D2 marks 1, 2 and 5, and 1 only the powers of ten.
        dtick: log ? (high - low > 2 ? 1 : "D2") : null, nticks: narrow.matches ? 4 : 6, tickangle: 0, tickformat: name === "parameters" ? "~s" : ".2~e" },
      { title: { text: plain(data.metric) + " (nats)" }, tickformat: ".3~f" }));
  }

  function heatMap() {
    const map = data.heat_map;
    const trace = map && {
      type: "heatmap", x: map.x.map((_, i) => i), y: map.y.map((_, i) => i), z: map.mean, colorscale: "Cividis",
      reversescale: true, xgap: 2, ygap: 2, text: map.mean.map((row) => row.map((v) => v === null ? "" : v.toFixed(3))),
      texttemplate: "%{text}", hovertemplate: "%{text}<extra></extra>", colorbar: { thickness: 10, outlinewidth: 0 },
    };
    draw("heat", map ? [trace] : [], map && layout(
      { title: { text: plain(map.x_name) }, tickvals: map.x.map((_, i) => i), ticktext: map.x.map(short), showgrid: false },
      { title: { text: plain(map.y_name) }, tickvals: map.y.map((_, i) => i), ticktext: map.y.map(short), showgrid: false,
        autorange: "reversed" }));
  }

  // The study's own figure: one panel for each value of its third setting, all on one scale of losses.
  function study() {
    const figure = data.study;
    if (!figure) return;
    const points = figure.panels.flatMap((panel) => panel.series.flatMap((series) => series.points));
    const low = Math.min(...points.map(([, mean, half]) => mean - (half || 0)));
    const high = Math.max(...points.map(([, mean, half]) => mean + (half || 0)));
    const room = 0.06 * (high - low) || 0.05;
    figure.panels.forEach((panel, i) => {
      const traces = panel.series.map((series) => ({
        type: "scatter", mode: series.joined ? "lines+markers" : "markers", name: plain(series.label),
        x: series.points.map((point) => point[0]), y: series.points.map((point) => point[1]),
        error_y: { type: "data", array: series.points.map((point) => point[2] || 0), thickness: 1.5, width: 4 },
        line: { color: series.colour, width: 2 }, marker: { color: series.colour, size: 8 },
        text: series.points.map((point) => plain(series.label) + "<br>" + interval(point[1], point[2])),
        hovertemplate: "%{text}<extra></extra>",
      }));
      draw("study-" + i, traces, layout(
        { title: { text: plain(figure.x_name) }, type: figure.log ? "log" : "linear", showgrid: false,
          tickvals: figure.ticks.map((tick) => tick[0]), ticktext: figure.ticks.map((tick) => short(tick[1])) },
        { title: { text: plain(data.metric) + " (nats)" }, tickformat: ".3~f", range: [low - room, high + room] },
        { showlegend: panel.series.length > 1, legend: { orientation: "h", y: 1.02, yanchor: "bottom" } }));
    });
  }

  function drawAll() {
    study();
    differences();
    curves();
    scatter("parameters", "parameters");
    scatter("flops", "training FLOPs");
    heatMap();
    const visible = Array.from(document.querySelectorAll(".figures > figure")).filter((figure) => !figure.hidden);
    visible.forEach((figure, i) => figure.classList.toggle("wide", visible.length % 2 === 1 && i === visible.length - 1));
    visible.forEach((figure) => Plotly.Plots.resize(figure.lastElementChild));
  }

  groups.forEach((group, index) => {
    const chip = document.createElement("button");
    const swatch = document.createElement("span");
    swatch.className = "swatch";
    swatch.style.background = group.colour;
    chip.append(swatch, group.label);
    chip.type = "button";
    chip.setAttribute("aria-pressed", "true");
    chip.addEventListener("click", () => {
      shown[index] = !shown[index];
      chip.setAttribute("aria-pressed", String(shown[index]));
      drawAll();
    });
    document.getElementById("chips").append(chip);
  });

  dark.addEventListener("change", drawAll);
  narrow.addEventListener("change", drawAll);
  drawAll();
})();

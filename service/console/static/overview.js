// Live updates of the overview: the stream's events replace changed elements and add points to the charts.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const live = document.getElementById("live"), charts = document.querySelector(".charts");
  const style = getComputedStyle(document.documentElement);
  const colour = name => style.getPropertyValue(name).trim();
  const retentionS = 3600;
  let points = null;

  // Replaces only elements that differ, so that the page does not jump and the focus stays.
  function update(old, fresh) {
    const before = [...old.children], after = [...fresh.children];
    after.forEach((child, i) => {
      if (!before[i]) old.append(child);
      else if (!before[i].isEqualNode(child)) before[i].replaceWith(child);
    });
    before.slice(after.length).forEach(child => child.remove());
  }

  const seconds = value => value == null ? "" : value >= 3600 ? `${+(value / 3600).toFixed(1)} h`
    : value >= 60 ? `${+(value / 60).toFixed(1)} min` : `${+value.toFixed(1)} s`;

  // Axis labels in the page's time zone, with seconds only if ticks are less than a minute apart.
  const clock = withSeconds => new Intl.DateTimeFormat("en-GB",
    {timeZone: live.dataset.zone, hour: "2-digit", minute: "2-digit", second: withSeconds ? "2-digit" : undefined});
  const clocks = [clock(false), clock(true)];
  const times = (plot, at, axis, space, apartS) => at.map(each => clocks[+(apartS < 60)].format(each * 1000));

  function chart(id, names, format) {
    const container = document.getElementById(id), muted = colour("--pico-muted-color");
    const grid = {stroke: colour("--pico-muted-border-color"), width: 1};
    const axis = {stroke: muted, grid, ticks: {show: false}, font: "12px system-ui"};
    const plot = new uPlot({
      width: container.clientWidth, height: 180, cursor: {drag: {x: false}},
      tzDate: at => uPlot.tzDate(new Date(at * 1000), live.dataset.zone),
      scales: {y: {range: (u, least, most) => [0, Math.max(most * 1.1, 1)]}},
      axes: [{...axis, space: 72, values: times}, {...axis, size: 56, values: (u, values) => values.map(value => format(value))}],
      series: [{label: "Time", value: (plot, at) => at == null ? "–" : clocks[1].format(at * 1000)}, ...names.map(([, label, stroke, dash]) =>
        ({label, stroke: colour(stroke), dash, width: 2, spanGaps: true, value: (u, value) => value == null ? "–" : format(value)}))],
    }, data(names), container);
    new ResizeObserver(() => plot.setSize({width: container.clientWidth, height: 180})).observe(container);
    return () => plot.setData(data(names));
  }

  const data = names => [points.at_s, ...names.map(([key]) => points[key])];
  const plain = value => value.toLocaleString();
  let redraw = [];

  function createCharts() {
    charts.hidden = false;
    redraw = [
      chart("chart-polls", [["good", "Successful", "--good"], ["failed", "Failed", "--bad"], ["budget", "Budget", "--pico-muted-color", [6, 4]]], plain),
      chart("chart-detection", [["seen_p50", "Median", "--pico-primary"], ["seen_p95", "p95", "--pico-muted-color", [6, 4]]], seconds),
      chart("chart-messages", [["messages", "Messages", "--pico-primary"], ["waiting", "Waiting", "--bad"]], plain),
      chart("chart-sent", [["sent_p50", "Median", "--pico-primary"], ["sent_p95", "p95", "--pico-muted-color", [6, 4]]], seconds),
    ];
  }

  const stream = new EventSource(live.dataset.stream);
  stream.addEventListener("live", event => {
    const fresh = document.createElement("div");
    fresh.innerHTML = event.data;
    update(live, fresh);
  });
  stream.addEventListener("points", event => {
    const added = JSON.parse(event.data);
    if (!points || added.at_s.length > 1) points = added;
    else for (const name in points) points[name].push(...added[name]);
    while (points.at_s.length && points.at_s[0] < points.at_s.at(-1) - retentionS)
      for (const name in points) points[name].shift();
    if (points.at_s.length < 2) return;
    if (!redraw.length) createCharts();
    redraw.forEach(each => each());
  });
});

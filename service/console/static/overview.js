// The overview, live: what the stream sends replaces what has changed, and charts get their points.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const live = document.getElementById("live"), charts = document.querySelector(".charts");
  const style = getComputedStyle(document.documentElement);
  const colour = name => style.getPropertyValue(name).trim();
  const keptS = 3600;
  let points = null;

  // Only what differs is replaced, so that nothing jumps and the focus stays.
  function renew(old, fresh) {
    const before = [...old.children], after = [...fresh.children];
    after.forEach((child, i) => {
      if (!before[i]) old.append(child);
      else if (!before[i].isEqualNode(child)) before[i].replaceWith(child);
    });
    before.slice(after.length).forEach(child => child.remove());
  }

  const seconds = value => value == null ? "" : value >= 3600 ? `${+(value / 3600).toFixed(1)} h`
    : value >= 60 ? `${+(value / 60).toFixed(1)} min` : `${+value.toFixed(1)} s`;

  // Moments on an axis, by the clock of the page's zone: seconds only where marks are nearer than a minute.
  const clock = withSeconds => new Intl.DateTimeFormat("en-GB",
    {timeZone: live.dataset.zone, hour: "2-digit", minute: "2-digit", second: withSeconds ? "2-digit" : undefined});
  const clocks = [clock(false), clock(true)];
  const times = (plot, at, axis, space, apartS) => at.map(each => clocks[+(apartS < 60)].format(each * 1000));

  function chart(id, names, format) {
    const place = document.getElementById(id), muted = colour("--pico-muted-color");
    const grid = {stroke: colour("--pico-muted-border-color"), width: 1};
    const axis = {stroke: muted, grid, ticks: {show: false}, font: "12px system-ui"};
    const plot = new uPlot({
      width: place.clientWidth, height: 180, cursor: {drag: {x: false}},
      tzDate: at => uPlot.tzDate(new Date(at * 1000), live.dataset.zone),
      scales: {y: {range: (u, least, most) => [0, Math.max(most * 1.1, 1)]}},
      axes: [{...axis, space: 72, values: times}, {...axis, size: 56, values: (u, values) => values.map(value => format(value))}],
      series: [{label: "Time", value: (plot, at) => at == null ? "–" : clocks[1].format(at * 1000)}, ...names.map(([, label, stroke, dash]) =>
        ({label, stroke: colour(stroke), dash, width: 2, spanGaps: true, value: (u, value) => value == null ? "–" : format(value)}))],
    }, data(names), place);
    new ResizeObserver(() => plot.setSize({width: place.clientWidth, height: 180})).observe(place);
    return () => plot.setData(data(names));
  }

  const data = names => [points.at_s, ...names.map(([key]) => points[key])];
  const plain = value => value.toLocaleString();
  let redraw = [];

  function begin() {
    charts.hidden = false;
    redraw = [
      chart("chart-polls", [["good", "Well", "--good"], ["failed", "Failed", "--bad"], ["budget", "Budget", "--pico-muted-color", [6, 4]]], plain),
      chart("chart-seen", [["seen_p50", "Half", "--pico-primary"], ["seen_p95", "95 %", "--pico-muted-color", [6, 4]]], seconds),
      chart("chart-messages", [["messages", "Messages", "--pico-primary"], ["waiting", "Waiting", "--bad"]], plain),
      chart("chart-sent", [["sent_p50", "Half", "--pico-primary"], ["sent_p95", "95 %", "--pico-muted-color", [6, 4]]], seconds),
    ];
  }

  const stream = new EventSource(live.dataset.stream);
  stream.addEventListener("live", event => {
    const fresh = document.createElement("div");
    fresh.innerHTML = event.data;
    renew(live, fresh);
  });
  stream.addEventListener("points", event => {
    const told = JSON.parse(event.data);
    if (!points || told.at_s.length > 1) points = told;
    else for (const name in points) points[name].push(...told[name]);
    while (points.at_s.length && points.at_s[0] < points.at_s.at(-1) - keptS)
      for (const name in points) points[name].shift();
    if (points.at_s.length < 2) return;
    if (!redraw.length) begin();
    redraw.forEach(each => each());
  });
});

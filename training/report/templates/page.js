"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const root = document.documentElement;

  // ---- charts: names of colours become those of the theme
  const colour = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
  const dressed = (value) => {
    if (typeof value === "string") return value.startsWith("@") ? colour(value.slice(1)) : value;
    if (Array.isArray(value)) return value.map(dressed);
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, dressed(item)]));
    return value;
  };
  // A page is laid out anew for paper after charts could still be drawn: they get its width beforehand.
  const onPaper = 660;
  const draw = (place) => {
    const chart = dressed(charts[place.dataset.chart]);
    const printing = matchMedia("print").matches;
    if (printing) chart.layout.width = onPaper;
    const narrow = !printing && place.clientWidth < 480;
    if (narrow) {
      chart.layout.font.size = 11.5;
      const ticks = chart.layout.xaxis.tickvals;
      if (ticks && ticks.length > 5) {
        const one = ticks.indexOf(1) % 2;
        chart.layout.xaxis.tickvals = ticks.filter((_, at) => at % 2 === one);
        chart.layout.xaxis.ticktext = chart.layout.xaxis.ticktext.filter((_, at) => at % 2 === one);
      }
    }
    place.style.height = chart.height + "px";
    Plotly.react(place, chart.data, chart.layout, { displayModeBar: false, responsive: !printing });
    if (!place.dataset.heard) {
      place.dataset.heard = "yes";
      place.on("plotly_click", (event) => {
        const link = charts[place.dataset.chart].links?.[event.points[0].curveNumber]?.[event.points[0].pointIndex];
        if (link) show(link);
      });
    }
  };
  const visible = (place) => place.offsetParent !== null;
  const drawAll = (every) => all("[data-chart]").filter((place) => every || visible(place)).forEach(draw);

  // ---- tabs
  const tabs = all("[role=tab]");
  const open = (tab, focus) => {
    tabs.forEach((other) => {
      const chosen = other === tab;
      other.setAttribute("aria-selected", chosen);
      other.tabIndex = chosen ? 0 : -1;
      document.getElementById(other.getAttribute("aria-controls")).hidden = !chosen;
    });
    if (focus) tab.focus();
    tab.scrollIntoView({ block: "nearest", inline: "nearest" });
    drawAll();
    fitAll();
  };
  tabs.forEach((tab, at) => {
    tab.addEventListener("click", () => open(tab));
    tab.addEventListener("keydown", (event) => {
      const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      open(tabs[(to + tabs.length) % tabs.length], true);
    });
  });
  // An element by its id, with the tab and the details that it lies in opened.
  const show = (id) => {
    const found = document.getElementById(id);
    if (!found) return;
    const panel = found.closest("[role=tabpanel]");
    if (panel) open(document.querySelector(`[aria-controls="${panel.id}"]`));
    for (let at = found; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    history.replaceState(null, "", "#" + id);
    found.scrollIntoView({ block: "start" });
  };
  all("a[href^='#']").forEach((link) =>
    link.addEventListener("click", (event) => {
      event.preventDefault();
      show(link.getAttribute("href").slice(1));
    })
  );

  // ---- pictures: a view box that is moved and scaled
  const boxes = new Map();
  const put = (svg, box) => {
    boxes.set(svg, box);
    svg.setAttribute("viewBox", box.join(" "));
  };
  const whole = (svg) => [0, 0, +svg.dataset.width, +svg.dataset.height];
  const readable = (svg) => {
    const stage = svg.parentElement.getBoundingClientRect();
    if (!stage.width || !stage.height) return;
    const [, , width, height] = whole(svg);
    const fits = Math.min(stage.width / width, stage.height / height);
    const scale = Math.max(Math.min(fits, 1.25), Math.min(0.62, stage.width / 520));
    const seen = [stage.width / scale, stage.height / scale];
    // What does not fit is shown from its first change on.
    const changed = fits < scale && svg.querySelector(".removed, .inserted");
    const spot = changed ? changed.getBBox() : { x: width / 2, y: 0, width: 0 };
    const within = (at, size, all) => (all <= size ? (all - size) / 2 : Math.max(0, Math.min(at, all - size)));
    put(svg, [
      within(spot.x + spot.width / 2 - seen[0] / 2, seen[0], width),
      Math.max(0, Math.min(spot.y - 130, height - seen[1])),
      ...seen,
    ]);
  };
  const zoom = (svg, factor, at) => {
    const [x, y, width, height] = boxes.get(svg) || whole(svg);
    const [px, py] = at || [x + width / 2, y + height / 2];
    put(svg, [px - (px - x) * factor, py - (py - y) * factor, width * factor, height * factor]);
  };
  const point = (svg, event) => {
    const spot = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    return [spot.x, spot.y];
  };
  const fitAll = () => all(".stage svg:not([hidden])").forEach((svg) => boxes.has(svg) || readable(svg));
  all(".stage svg").forEach((svg) => {
    let from = null;
    svg.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch" && !event.isPrimary) return;
      from = { event, box: [...(boxes.get(svg) || whole(svg))] };
      svg.classList.add("moving");
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", (event) => {
      if (!from) return;
      const scale = from.box[2] / svg.clientWidth;
      const tall = from.box[3] / svg.clientHeight;
      const by = Math.max(scale, tall);
      put(svg, [
        from.box[0] - (event.clientX - from.event.clientX) * by,
        from.box[1] - (event.clientY - from.event.clientY) * by,
        from.box[2],
        from.box[3],
      ]);
    });
    ["pointerup", "pointercancel"].forEach((name) =>
      svg.addEventListener(name, () => {
        from = null;
        svg.classList.remove("moving");
      })
    );
    svg.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey && !event.metaKey) return; // plain wheels scroll the page
        event.preventDefault();
        zoom(svg, event.deltaY > 0 ? 1.15 : 1 / 1.15, point(svg, event));
      },
      { passive: false }
    );
    svg.addEventListener("keydown", (event) => {
      const [x, y, width, height] = boxes.get(svg) || whole(svg);
      const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      const factor = { "+": 1 / 1.4, "=": 1 / 1.4, "-": 1.4 }[event.key];
      if (event.ctrlKey || event.metaKey || event.altKey || !(by || factor || event.key === "0")) return;
      event.preventDefault();
      if (by) put(svg, [x + (by[0] * width) / 8, y + (by[1] * height) / 8, width, height]);
      else if (factor) zoom(svg, factor);
      else put(svg, whole(svg));
    });
    svg.addEventListener("dblclick", (event) => zoom(svg, 1 / 1.6, point(svg, event)));
  });
  const shown = (view) => view.querySelector(".stage svg:not([hidden])");
  all(".view").forEach((view) =>
    all("button", view).forEach((button) =>
      button.addEventListener("click", () => {
        const svg = shown(view);
        if (button.dataset.do === "in") zoom(svg, 1 / 1.4);
        if (button.dataset.do === "out") zoom(svg, 1.4);
        if (button.dataset.do === "fit") put(svg, whole(svg));
        if (button.dataset.do === "every") {
          const pressed = button.getAttribute("aria-pressed") !== "true";
          button.setAttribute("aria-pressed", pressed);
          all(".stage svg", view).forEach((one) => one.toggleAttribute("hidden", pressed !== ("every" in one.dataset)));
          fitAll();
        }
      })
    )
  );
  // What one step touched.
  const light = (step) => {
    all("[data-light]").forEach((other) => other.setAttribute("aria-pressed", other.dataset.light === step));
    all(".stage .box").forEach((box) =>
      box.classList.toggle("dim", step !== "" && !box.dataset.steps.split(" ").includes(step))
    );
    all(".stage .edge").forEach((edge) => edge.classList.toggle("dim", step !== ""));
  };
  all("[data-light]").forEach((button) => button.addEventListener("click", () => light(button.dataset.light)));
  all("[data-look]").forEach((button) =>
    button.addEventListener("click", () => {
      show("pictures");
      light(button.dataset.look);
    })
  );

  // ---- small things
  all("[data-copy]").forEach((button) =>
    button.addEventListener("click", async () => {
      const text = document.getElementById(button.dataset.copy).textContent;
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        const range = document.createRange();
        range.selectNodeContents(document.getElementById(button.dataset.copy));
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        button.textContent = "Selected";
      }
      setTimeout(() => (button.textContent = "Copy"), 1800);
    })
  );
  all("[data-save]").forEach((button) =>
    button.addEventListener("click", () => {
      const text = document.getElementById(button.dataset.save).textContent;
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text], { type: "text/x-python" }));
      link.download = button.dataset.name;
      link.click();
      URL.revokeObjectURL(link.href);
    })
  );
  all("[data-filter]").forEach((input) =>
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      all("tbody tr", document.getElementById(input.dataset.filter)).forEach((row) => {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      });
    })
  );

  // ---- theme and print
  const themes = ["auto", "light", "dark"];
  const button = document.querySelector(".theme");
  const dress = (name) => {
    if (name === "auto") delete root.dataset.theme;
    else root.dataset.theme = name;
    button.textContent = { auto: "Theme: auto", light: "Theme: light", dark: "Theme: dark" }[name];
    drawAll();
  };
  button.addEventListener("click", () => {
    const next = themes[(themes.indexOf(root.dataset.theme || "auto") + 1) % themes.length];
    dress(next);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll());
  const paper = (printing) => {
    if (printing) all(".stage svg").forEach((svg) => put(svg, whole(svg)));
    drawAll(printing);
    if (!printing) {
      boxes.clear();
      fitAll();
    }
  };
  matchMedia("print").addEventListener("change", (event) => paper(event.matches));
  addEventListener("beforeprint", () => all("details").forEach((one) => one.classList.contains("print") && (one.open = true)));

  if (tabs.length) open(tabs[0]);
  else drawAll();
  if (location.hash.length > 1) show(decodeURIComponent(location.hash.slice(1)));
  root.dataset.ready = "yes";
})();

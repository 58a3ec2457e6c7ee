const video = document.querySelector("[data-video]").dataset.video;

// While the tab is seen. Parts that are as they were stay in place, so that screen readers announce a status once.
setInterval(async () => {
  if (document.hidden) return;
  const panels = await (await fetch("/admin/panels?video=" + video)).json();
  for (const [id, html] of Object.entries(panels)) {
    const place = document.getElementById(id);
    if (place.innerHTML !== html) place.innerHTML = html;
  }
}, 500);

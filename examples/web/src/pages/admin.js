const panel = document.getElementById("panel");

// While the tab is seen, as on a video's page.
let events;
function look() {
  events?.close();
  if (document.hidden) return;
  events = new EventSource("/admin/events?video=" + panel.dataset.video);
  events.onmessage = (event) => (panel.innerHTML = event.data);
}
document.addEventListener("visibilitychange", look);
look();

const video = document.querySelector("[data-video]").dataset.video;

// While the tab is seen, as on a video's page. Parts that are as they were stay in place, so that screen readers announce a status once.
let events;
function look() {
  events?.close();
  if (document.hidden) return;
  events = new EventSource("/admin/events?video=" + video);
  events.onmessage = (event) => {
    for (const [id, html] of Object.entries(JSON.parse(event.data))) {
      const place = document.getElementById(id);
      if (place.innerHTML !== html) place.innerHTML = html;
    }
  };
}
document.addEventListener("visibilitychange", look);
look();

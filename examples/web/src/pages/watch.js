// While the tab is seen: a browser keeps few connections to one site, and each tab would hold one.
let events;
function look() {
  events?.close();
  if (document.hidden) return;
  events = new EventSource(location.pathname + "/events");
  events.onmessage = (event) => {
    for (const [id, text] of Object.entries(JSON.parse(event.data)))
      document.getElementById(id).textContent = text;
  };
}
document.addEventListener("visibilitychange", look);
look();

function show(texts) {
  for (const [name, text] of Object.entries(texts))
    for (const place of document.querySelectorAll(`[data-live="${name}"]`))
      place.textContent = text;
}

// While the tab is seen: a browser keeps few connections to one site, and each tab would hold one.
let events;
function look() {
  events?.close();
  if (document.hidden) return;
  events = new EventSource(location.pathname + "/events");
  events.onmessage = (event) => show(JSON.parse(event.data));
}
document.addEventListener("visibilitychange", look);
look();

const form = document.querySelector("form.like");
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const liked = form.elements.liked;
  const answer = await fetch(form.action, {
    method: "POST",
    headers: { accept: "application/json" },
    body: new URLSearchParams({ liked: liked.value }),
  });
  if (!answer.ok) return form.submit(); // and let its answer be read
  show(await answer.json());
  const now = liked.value === "true";
  liked.value = String(!now);
  form.querySelector("button").setAttribute("aria-pressed", String(now));
});
